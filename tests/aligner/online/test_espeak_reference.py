import itertools

import numpy as np
import pytest

from voiceagent_tts.aligner.online.espeak_reference import GrowingReference, ReferenceVoice
from voiceagent_tts.aligner.online.features import WIDTH
from voiceagent_tts.text.words import split_words

TEXT = "Thanks for waiting, your order left our warehouse this morning and arrives on Friday."


@pytest.fixture(scope="module")
def voice() -> ReferenceVoice:
    """The process's espeak."""
    return ReferenceVoice()


def reference_of(
    voice: ReferenceVoice, text: str, vtln_warps: tuple[float, ...] = (1.0,), language: str = "en"
) -> GrowingReference:
    """A reference of which all words are said that are needed at first."""
    reference = GrowingReference(voice, voice.voice_for(language), vtln_warps)
    reference.append(split_words(text))
    reference.extend(0, 1.0, is_urgent=True)
    return reference


def test_every_word_has_its_frames(voice: ReferenceVoice) -> None:
    """In order and without overlap, from the first frame to the last."""
    reference = reference_of(voice, TEXT)
    words = list(reference.words)
    assert [row.word for row in words] == split_words(TEXT)
    assert words[0].first_frame == 0
    for before, after in itertools.pairwise(words):
        assert before.first_frame < before.end_frame <= after.first_frame
    assert words[-1].end_frame <= reference.length


def test_renderings_have_the_same_frames(voice: ReferenceVoice) -> None:
    """As from other vocal vtln_warps: as many frames, with other features."""
    reference_of(voice, "Something that was said before.", (1.15,))
    reference = reference_of(voice, TEXT, (0.95, 1.15))
    features = reference.features(range(reference.length))
    assert features.shape == (reference.length, 2, WIDTH)
    assert np.abs(features[:, 0] - features[:, 1]).mean() > 0.1
    reference.keep_rendering(1)
    assert np.array_equal(reference.features(range(reference.length))[:, 0], features[:, 1])


def test_pauses_are_left_out(voice: ReferenceVoice) -> None:
    """Full stops make a text sound longer, not have more frames."""
    joined, cut = reference_of(voice, "Stop go wait"), reference_of(voice, "Stop! Go! Wait!")
    assert cut.length < joined.length * 1.5
    assert cut.sample(cut.length) > joined.sample(joined.length) * 1.2


def test_no_more_is_said_than_is_needed(voice: ReferenceVoice) -> None:
    """A page of text costs a few clauses, and more when the sound has come nearer."""
    reference = reference_of(voice, f"{TEXT} " * 40)
    first = reference.length
    assert first < 1_000
    reference.extend(first - 50, 1.0, is_urgent=False)
    assert first < reference.length < 2_000
    reference.drop_frames(first - 50)
    assert reference.kept_frames == reference.length - first + 50


def test_a_clause_is_waited_for_unless_the_sound_waits(voice: ReferenceVoice) -> None:
    """One word is not said alone while the next may come; it is when nothing else is there."""
    reference = GrowingReference(voice, voice.voice_for("en"), (1.0,))
    reference.append(split_words("Hello"))
    reference.extend(0, 1.0, is_urgent=False)
    assert reference.length == 0
    reference.extend(0, 1.0, is_urgent=True)
    assert reference.length > 0


def test_words_are_taken_by_their_place_in_the_text(voice: ReferenceVoice) -> None:
    """Those before it that were said, and those that nobody needed to say."""
    text = f"{TEXT} " * 20
    reference = reference_of(voice, text)
    words = split_words(text)
    said, unsaid = reference.pop_words(words[-3].char_start)
    assert [row.word for row in said] + unsaid == words[:-3]
    assert said
    assert unsaid


def test_a_slow_voice_gets_a_slow_reference(voice: ReferenceVoice) -> None:
    """Twice as slow is nearly twice as many frames, though normally they would be as many."""
    normal, slow = (GrowingReference(voice, voice.voice_for("en"), (1.0,)) for _ in range(2))
    for reference, duration_ratio in ((normal, 1.0), (slow, 1.8)):
        reference.append(split_words(TEXT))
        reference.extend(0, duration_ratio, is_urgent=True)
    assert 1.4 < slow.words[-1].end_frame / normal.words[-1].end_frame < 2.0
    assert slow.words[1].normal_frames == pytest.approx(normal.words[1].normal_frames, rel=0.3)


def test_kanji_have_the_frames_of_their_readings(voice: ReferenceVoice) -> None:
    """A character is a word of the client's, and one syllable or two, not a name of itself."""
    reference = reference_of(voice, "今日は木曜日です。", language="ja")
    assert all(row.end_frame - row.first_frame < 50 for row in reference.words)
