"""The aligner on real speech: the voices of espeak, whose word times are known."""

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed import texts
from testbed.agent_text import agent_monologue, agent_sentences
from testbed.aligned_texts import OTHERS
from testbed.known_speech import Spoken, espeak, joined, with_lead, with_pauses
from voiceagent_tts.aligner.online import aligner as online
from voiceagent_tts.aligner.online import viterbi
from voiceagent_tts.aligner.online.aligner import OnlineAligner, OnlineSession
from voiceagent_tts.aligner.online.espeak_reference import ReferenceVoice
from voiceagent_tts.aligner.online.features import Frames
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, SAMPLE_RATE_HZ, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.speech import Speech
from voiceagent_tts.espeak.voices import EspeakVoice
from voiceagent_tts.text.words import split_words

FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE
SENTENCE = "Thanks for waiting, your order left our warehouse this morning and arrives on Friday."


def follow(session: OnlineSession, spoken: Spoken, sizes: Iterable[int]) -> list[WordTimestamp]:
    """All words of `spoken`, whose text is there from the beginning."""
    session.append(split_words(spoken.text))
    committed: list[WordTimestamp] = []
    for part in cut(spoken.pcm, sizes):
        committed += session.push(part)
    return committed + list(session.finish())


def cut(pcm: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """`pcm` in parts of so many samples; the rest in frames."""
    place = 0
    for size in sizes:
        yield pcm[place : place + size * BYTES_PER_SAMPLE]
        place += size * BYTES_PER_SAMPLE
    for start in range(place, len(pcm), FRAME_BYTES):
        yield pcm[start : start + FRAME_BYTES]


def errors_ms(spoken: Spoken, words: Sequence[WordTimestamp]) -> np.ndarray:
    """How far the starts are from the truth."""
    assert [row.word for row in words] == [row.word for row in spoken.words]
    pairs = zip(words, spoken.words, strict=True)
    return np.array([abs(ours.start_sample - true.start_sample) / 24 for ours, true in pairs])


def starts_ms(spoken: Spoken) -> np.ndarray:
    """When the words really begin."""
    return np.array([row.start_sample for row in spoken.words]) / 24


def aligned_errors_ms(aligner: OnlineAligner, spoken: Iterable[Spoken]) -> np.ndarray:
    """The same for several contexts, one after the other."""
    return np.concatenate(
        [errors_ms(one, follow(aligner.open(one.language, one.speaker), one, ())) for one in spoken]
    )


@pytest.mark.parametrize(("speaker", "pace"), [("f3", 0.8), ("m5", 1.0), ("annie", 1.3)])
def test_other_voices_are_followed_to_the_word(speaker: str, pace: float) -> None:
    """Another timbre and pace than the reference's: 12 ms on average, nearly all within 100 ms."""
    sentences = islice(agent_sentences(1), 12)
    errors = aligned_errors_ms(
        OnlineAligner(), (espeak(text, "en", speaker, pace) for text in sentences)
    )
    assert errors.mean() <= 12
    assert (errors <= 100).mean() >= 0.99


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_is_followed(language: str) -> None:
    """All languages of the voices have a reference; Japanese by its readings."""
    spoken = (espeak(text, language, "f2", 1.1) for text in OTHERS[language])
    errors = aligned_errors_ms(OnlineAligner(), spoken)
    assert errors.mean() <= 12
    assert (errors <= 100).mean() >= 0.96


def test_pauses_and_a_silent_beginning_do_not_count() -> None:
    """Silence that the reference has not, half a second before and two inside, moves nothing."""
    spoken = espeak(SENTENCE, "en", "f3")
    spoken = with_lead(with_pauses(spoken, [(3, 2_000), (9, 400)]), 500)
    errors = aligned_errors_ms(OnlineAligner(), [spoken])
    assert errors.max() <= 60


class SameReference(ReferenceVoice):
    """Says the same words the same way: espeak's samples differ a little from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[object, Speech] = {}

    def synthesize(
        self, words: Sequence[Word], voice: EspeakVoice, duration_ratio: float
    ) -> Speech:
        key = (*words, voice, duration_ratio)
        if key not in self.said:
            self.said[key] = super().synthesize(words, voice, duration_ratio)
        return self.said[key]


@pytest.fixture(scope="module")
def same_reference() -> SameReference:
    """One for all tests, as it remembers what it has said."""
    return SameReference()


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 9_000), max_size=60))
def test_how_audio_is_cut_does_not_matter(same_reference: SameReference, sizes: list[int]) -> None:
    """The same words come out, to the sample, however the sound was cut into pushes."""
    spoken = spoken_sentence()
    whole, parts = (
        follow(OnlineAligner(same_reference).open("en", "v"), spoken, cuts) for cuts in ((), sizes)
    )
    assert parts == whole


@cache
def spoken_sentence() -> Spoken:
    """`SENTENCE`, always the same to the sample."""
    return espeak(SENTENCE, "en", "m3", 1.1)


def test_every_word_comes_once_in_order_and_inside_the_audio() -> None:
    """300 texts in ten languages, as models write them: all their words, verbatim."""
    rng = random.Random(5)
    aligner = OnlineAligner()
    languages = list(texts.TEXTS)
    for number in range(300):
        language = languages[number % len(languages)]
        text = generated_text(rng, language)
        spoken = espeak(text, language, "f2", 2.0)
        words = follow(aligner.open(language, "f2"), spoken, [rng.randrange(1, 5_000)])
        assert [row.word for row in words] == split_words(text)
        starts = [row.start_sample for row in words]
        assert starts == sorted(starts)
        for row in words:
            assert text[row.word.char_start : row.word.char_end] == row.word.text
            assert row.end_sample is not None
            assert 0 <= row.start_sample <= row.end_sample <= spoken.samples


def generated_text(rng: random.Random, language: str) -> str:
    """A sentence of the language, or a part of one, with noise of other scripts and signs."""
    text = rng.choice(texts.TEXTS[language])
    if rng.random() < 0.4:
        start, end = sorted(rng.sample(range(len(text) + 1), 2))
        text = text[start:end]
    if rng.random() < 0.4:
        text += " " + rng.choice(texts.MIXED)[: rng.randrange(1, 30)]
    if rng.random() < 0.3:
        text = f"{rng.randrange(10_000)} {text}"
    return text


def test_nothing_looks_ahead(same_reference: SameReference) -> None:
    """Committed and tentative times are the same whatever follows."""
    spoken = espeak(SENTENCE, "en", "f3")
    other = espeak("Something else is said from here on, by a much louder voice.", "en", "m8")
    for frames in (10, 25, 40):
        start = spoken.pcm[: frames * FRAME_BYTES]
        alone, followed = (OnlineAligner(same_reference).open("en", "v") for _ in range(2))
        for session in (alone, followed):
            session.append(split_words(SENTENCE))
        committed = alone.push(start)
        assert followed.push(start + other.pcm)[: len(committed)] == committed
        assert alone.tentative()


def test_tentative_times_run_ahead() -> None:
    """At any moment it holds the words that have begun, the next one, and times near the truth."""
    spoken = espeak(SENTENCE, "en", "f3")
    session = OnlineAligner().open("en", "v")
    session.append(split_words(SENTENCE))
    seen = 0
    errors: list[float] = []
    for count, part in enumerate(cut(spoken.pcm, ()), start=1):
        seen += len(session.push(part))
        ahead = session.tentative()
        assert [row.word for row in ahead] == [
            row.word for row in spoken.words[seen : seen + len(ahead)]
        ]
        begun = [row for row in spoken.words if row.start_sample < (count - 2) * FRAME_SAMPLES]
        assert seen + len(ahead) >= min(len(begun) + 1, len(spoken.words))
        errors += (
            abs(row.start_sample - spoken.words[seen + index].start_sample) / 24
            for index, row in enumerate(ahead[:2])
        )
    assert np.median(errors) <= 40


def test_text_may_grow_while_the_sound_is_made() -> None:
    """Words that come one at a time, the first ones after their sound, are found where they are."""
    spoken = espeak(SENTENCE, "en", "f3")
    session = OnlineAligner().open("en", "v")
    waiting = split_words(SENTENCE)
    committed: list[WordTimestamp] = []
    for number, part in enumerate(cut(spoken.pcm, ())):
        if number > 8 and waiting:
            session.append([waiting.pop(0)])
        committed += session.push(part)
    committed += session.finish()
    assert errors_ms(spoken, committed).mean() <= 25


def test_segments_are_anchors() -> None:
    """What is told to have ended has: its words are out, and the next begin behind it."""
    parts = [espeak(text, "en", "f3") for text in islice(agent_sentences(2), 4)]
    spoken = joined(parts)
    session = OnlineAligner().open("en", "v")
    session.append(split_words(spoken.text))
    committed: list[WordTimestamp] = []
    char_end = sample_end = 0
    for part in parts:
        for piece in cut(part.pcm, ()):
            committed += session.push(piece)
        char_end += len(part.text) + 1
        sample_end += part.samples
        committed += session.end_segment(char_end)
        assert committed[-1].word.char_end == char_end - 1
        assert committed[-1].start_sample < sample_end
    assert session.finish() == ()
    assert errors_ms(spoken, committed).mean() <= 12


def test_a_segment_without_words_leaves_nothing_behind() -> None:
    """Sound of a segment that has no words, a laugh or a breath, is not the next segment's."""
    laugh, spoken = espeak("Ha ha ha ha ha ha!", "en", "f3"), espeak(SENTENCE, "en", "f3")
    session = OnlineAligner().open("en", "v")
    assert session.push(laugh.pcm) == ()
    assert session.end_segment(0) == ()
    session.append(split_words(SENTENCE))
    committed = [row for part in cut(spoken.pcm, ()) for row in session.push(part)]
    committed += session.finish()
    delay_ms = laugh.samples / 24
    starts = [row.start_sample / 24 - delay_ms for row in committed]
    assert np.abs(np.array(starts) - starts_ms(spoken)).mean() <= 25


def test_sound_behind_the_last_word_is_not_kept() -> None:
    """Half a minute of other sound costs no memory, and words that follow little more than 1 s."""
    spoken, other = espeak(SENTENCE, "en", "f3"), espeak(agent_monologue(1, 90), "en", "m5")
    other_pcm = other.pcm[: 30 * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE]
    session = OnlineAligner().open("en", "v")
    words = split_words(f"{SENTENCE} {SENTENCE}")
    count = len(words) // 2
    session.append(words[:count])
    committed: list[WordTimestamp] = []
    for part in cut(spoken.pcm + other_pcm, ()):
        committed += session.push(part)
        assert session.remembered_frames <= 1_500
    session.append(words[count:])
    committed += (row for part in cut(spoken.pcm, ()) for row in session.push(part))
    committed += session.finish()
    assert [row.word for row in committed] == words
    starts = np.array([row.start_sample / 24 for row in committed])
    again = starts_ms(spoken) + (spoken.samples + len(other_pcm) // BYTES_PER_SAMPLE) / 24
    assert np.abs(starts[: count - 1] - starts_ms(spoken)[:-1]).max() <= 100
    assert np.abs(starts[count:] - again).max() <= 1_500


def test_words_without_sound_still_come() -> None:
    """Where nothing can be heard, or the sound ends too soon, the words come as guesses."""
    silent = OnlineAligner().open("en", "v")
    silent.append(split_words("Are you there?"))
    assert silent.push(bytes(SAMPLE_RATE_HZ * 2)) == ()
    words = silent.finish()
    assert [row.word.text for row in words] == ["Are", "you", "there?"]
    assert not any(row.is_exact for row in words)
    spoken = espeak(SENTENCE, "en", "f3")
    short = OnlineAligner().open("en", "v")
    short.append(split_words(SENTENCE))
    words = [*short.push(spoken.pcm[: spoken.samples // 2 * 2]), *short.finish()]
    assert [row.word for row in words] == split_words(SENTENCE)
    assert all(row.start_sample <= spoken.samples // 2 for row in words)


def test_a_long_context_costs_what_a_short_one_does() -> None:
    """Ten minutes in one context: what is kept, and looked at, stays what it was after one."""
    text = agent_monologue(3, 2_000)
    spoken = espeak(text, "en", "m3")
    assert spoken.samples > 500 * SAMPLE_RATE_HZ
    session = OnlineAligner().open("en", "v")
    session.append(split_words(text))
    committed: list[WordTimestamp] = []
    sizes: list[int] = []
    for part in cut(spoken.pcm, ()):
        committed += session.push(part)
        sizes.append(session.remembered_frames)
    committed += session.finish()
    assert max(sizes) <= 1_500
    errors = errors_ms(spoken, committed)
    assert errors.mean() <= 12
    assert (errors <= 100).mean() >= 0.99


def test_what_is_forgotten_moves_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so little memory that starts are lost, words are off by a word, not more and more."""
    for room in (viterbi, online):
        monkeypatch.setattr(room, "MAX_TRACED_FRAMES", 40)
    spoken = espeak(SENTENCE, "en", "f3", 0.8)
    assert aligned_errors_ms(OnlineAligner(), [spoken]).max() <= 1_000


def test_a_voice_is_known_the_second_time() -> None:
    """Its pace and its average sound are kept: the next context is followed from the first word."""
    aligner = OnlineAligner()
    first, second = islice(agent_sentences(4), 2)
    slow = [espeak(text, "en", "f4", 0.6) for text in (first, second)]
    aligned_errors_ms(aligner, slow[:1])
    assert (
        aligned_errors_ms(aligner, slow[1:]).mean()
        <= aligned_errors_ms(OnlineAligner(), slow[1:]).mean()
    )


class CountingReference(ReferenceVoice):
    """Knows for how many vocal tracts it was last asked."""

    vtln_warps = 0

    def render(
        self, speech: Speech, voice: EspeakVoice, vtln_warps: Iterable[float]
    ) -> list[Frames]:
        renderings = super().render(speech, voice, vtln_warps)
        self.vtln_warps = len(renderings)
        return renderings


@pytest.mark.parametrize("are_concurrent", [False, True])
def test_short_replies_are_enough_to_know_a_voice(are_concurrent: bool) -> None:
    """None is long enough to tell its vocal tract, all together are; at the same time, too."""
    reference = CountingReference()
    aligner = OnlineAligner(reference)
    reply = espeak("Yes, of course.", "en", "f3")
    opened = [aligner.open("en", "v") for _ in range(5)] if are_concurrent else []
    for turn in range(5):
        follow(opened[turn] if are_concurrent else aligner.open("en", "v"), reply, ())
    follow(aligner.open("en", "other"), reply, ())
    assert reference.vtln_warps > 1, "one alone is too short"
    follow(aligner.open("en", "v"), reply, ())
    assert reference.vtln_warps == 1


def test_a_context_that_hears_nothing_makes_nobody_forget() -> None:
    """What one context learns of a voice stays when another one ends that knew less."""
    spoken = [espeak(text, "en", "f4", 0.6) for text in islice(agent_sentences(4), 2)]
    alone, shared = OnlineAligner(), OnlineAligner()
    silent = shared.open("en", "f4")
    for aligner in (alone, shared):
        aligned_errors_ms(aligner, spoken[:1])
    silent.close()
    knows, forgot = (aligned_errors_ms(one, spoken[1:]).mean() for one in (shared, OnlineAligner()))
    assert knows == pytest.approx(aligned_errors_ms(alone, spoken[1:]).mean(), abs=2)
    assert knows < forgot


def test_an_unknown_language_is_refused() -> None:
    """There is no reference for it, and the message names those that there are."""
    with pytest.raises(InvalidRequestError, match="known are") as refused:
        OnlineAligner().open("tlh", "v")
    assert refused.value.code is ErrorCode.INVALID_LANGUAGE


def test_closing_twice_is_no_mistake() -> None:
    """A context that is cancelled is closed wherever it is, and once is enough."""
    session = OnlineAligner().open("en", "v")
    session.append(split_words(SENTENCE))
    session.push(bytes(9_999 * BYTES_PER_SAMPLE))
    session.close()
    session.close()
