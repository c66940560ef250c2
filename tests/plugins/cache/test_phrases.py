"""Phrases: what is in their keys, their words in another text, and their bytes in Redis."""

from dataclasses import replace

import pytest

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseVoice,
    SegmentVariant,
    SynthesisParams,
    WordTime,
    keys_of,
    said_text,
)
from voiceagent_tts.plugins.cache.store import params_of
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.events import Capabilities

CAPABILITIES = Capabilities(
    "qwen3", "1.7B", False, ("token", "segment"), ("en",), ("a", "b"), 8, revision="r1"
)
PLAIN, FIRST = SpeechOptions(), SegmentVariant("en")
VOICE = PhraseVoice("a", "0f")


def params(speech: SpeechOptions = PLAIN, **changes: object) -> SynthesisParams:
    """The parameters of a context of an engine with `CAPABILITIES` and changes."""
    capabilities = replace(CAPABILITIES, **changes)
    found = params_of(capabilities, VOICE, speech, "segment")
    assert found is not None
    return found


def digest(text: str, own: SynthesisParams | None = None, variant: SegmentVariant = FIRST) -> str:
    """The key of a text at the beginning of its context."""
    return digest_of(Segment(text, 0), own, variant)


def digest_of(
    segment: Segment, own: SynthesisParams | None = None, variant: SegmentVariant = FIRST
) -> str:
    """The key of a segment."""
    return next(keys_of((own or params(),), variant, segment)).digest


@pytest.mark.parametrize(
    "written",
    ["One moment.", "  One moment. ", "**One** moment.", "One\tmoment.", "One moment. 🙂"],
)
def test_texts_that_are_said_alike_have_one_key(written: str) -> None:
    """White space, markdown and emoji do not change what is said."""
    assert digest(written) == digest("One moment.")


@pytest.mark.parametrize("written", ["One moment", "one moment.", "One moment!", "Won moment."])
def test_texts_that_may_sound_different_have_other_keys(written: str) -> None:
    """Punctuation and letter case may change the melody."""
    assert digest(written) != digest("One moment.")


def test_readings_are_part_of_the_key() -> None:
    """The same letters with another lexicon are another sound; IPA counts, too."""
    masked = Segment("Ask aaaaa.", 0)
    keys = {
        digest_of(replace(masked, readings=readings))
        for readings in (
            (),
            (Reading(4, 9, "engine x"),),
            (Reading(4, 9, "shivawn"),),
            (Reading(4, 9, "shivawn", "ʃɪˈvɔːn"),),
        )
    }
    assert len(keys) == 4


def test_where_the_words_begin_is_part_of_the_key() -> None:
    """A word may be said as several; with equal words in all, they have other times."""
    first = Segment("xxx or New York.", 0, (Reading(0, 3, "New York"),))
    last = Segment("New York or xxx.", 0, (Reading(12, 15, "New York"),))
    assert said_text(first) == said_text(last) == "New York or New York."
    assert digest_of(first) != digest_of(last)
    moved = Segment(f" {first.text}", 40, (Reading(41, 44, "New York"),))
    assert digest_of(moved) == digest_of(first)


def test_everything_that_shapes_the_sound_is_in_the_key() -> None:
    """Engine, model, weights, voice and its content, instruct, seed; and the segment's variant."""
    plain = params()
    others = [
        replace(plain, voice=PhraseVoice("b", "0f")),
        replace(plain, voice=PhraseVoice("a", "1f")),
        params(revision="r2"),
        params(model="0.6B"),
        params(engine="other"),
        params(SpeechOptions(instruct="calm")),
        params(SpeechOptions(seed=7)),
        params(SpeechOptions(speed=1.5), has_native_speed=True),
    ]
    variants = [
        SegmentVariant(None),
        SegmentVariant("de"),
        SegmentVariant("en", lacks_lead=True),
        SegmentVariant("en", lacks_pause=True),
    ]
    keys = {digest("Hi.", other) for other in others} | {digest("Hi.", variant=p) for p in variants}
    assert len(keys) == len(others) + len(variants)
    assert digest("Hi.") not in keys


def test_what_comes_after_the_engine_is_in_no_key() -> None:
    """A speed that the server makes by stretching, decode windows, and files of no hurry."""
    speech = SpeechOptions(speed=1.5, initial_frames=4, is_batch=True, keeps_silence=True)
    assert params(speech) == params()


def test_a_person_who_is_made_anew_for_each_context_is_not_cached() -> None:
    """A voice from a description needs a seed to be the same one again."""
    designed = replace(CAPABILITIES, needs_instruct=True)
    assert params_of(designed, VOICE, SpeechOptions("a pirate"), "segment") is None
    assert params_of(designed, VOICE, SpeechOptions("a pirate", seed=3), "segment") is not None


def test_a_phrase_is_read_by_servers_of_other_versions() -> None:
    """A server drops the phrases of a clone that is removed, whichever version stored them."""
    line = (
        b'{"text": "Hi.", "spoken": {"voice": "anna", "content": "0f", "owner": "k1"}, '
        b'"words": [[0, null, 1.0]]}\n'
    )
    phrase = Phrase("Hi.", PhraseVoice("anna", "0f", "k1"), b"\1\0", (WordTime(0, None, 1.0),))
    assert Phrase.load(line + b"\1\0") == phrase and phrase.dump() == line + b"\1\0"
