import itertools

import pytest

from voiceagent_tts.aligner.online.espeak_reference import GrowingReference, ReferenceVoice
from voiceagent_tts.aligner.online.phones import PHONES, SILENCE, VOWELS
from voiceagent_tts.text.words import split_words

TEXT = "Thanks for waiting, your order left our warehouse this morning and arrives on Friday."


@pytest.fixture(scope="module")
def voice() -> ReferenceVoice:
    """The process's reference voice."""
    return ReferenceVoice()


def reference_of(voice: ReferenceVoice, text: str, language: str = "en") -> GrowingReference:
    """A reference with the words that are needed at first."""
    reference = GrowingReference(voice, voice.voice_for(language))
    reference.append(split_words(text))
    reference.extend(0, 1.0, is_urgent=True)
    return reference


def test_every_word_has_its_frames(voice: ReferenceVoice) -> None:
    """Words are in order, without overlap, from the first frame to the last."""
    reference = reference_of(voice, TEXT)
    words = list(reference.words)
    assert [row.word for row in words] == split_words(TEXT)
    assert words[0].first_frame == 0
    for before, after in itertools.pairwise(words):
        assert before.first_frame < before.end_frame <= after.first_frame
    assert words[-1].end_frame <= reference.length


def test_the_reference_has_the_phones_of_its_words(voice: ReferenceVoice) -> None:
    """In order and in their length; a diphthong is two phones, and nothing is silent."""
    reference = reference_of(voice, "See my boat.")
    phones = [PHONES[phone] for phone in reference.phones(range(reference.length))]
    assert [phone for phone, _ in itertools.groupby(phones)] == list("simæIbout")
    assert sum(phone in VOWELS for phone in phones) > len(phones) / 2
    assert SILENCE not in phones


def test_pauses_are_left_out(voice: ReferenceVoice) -> None:
    """Full stops lengthen the audio but add few frames."""
    joined, cut = reference_of(voice, "Stop go wait"), reference_of(voice, "Stop! Go! Wait!")
    assert cut.length < joined.length * 1.5
    assert cut.sample(cut.length) > joined.sample(joined.length) * 1.2


def test_no_more_is_synthesized_than_needed(voice: ReferenceVoice) -> None:
    """Of a page of text a few clauses are synthesized, and more when the head comes near."""
    reference = reference_of(voice, f"{TEXT} " * 40)
    first = reference.length
    assert first < 1_000
    reference.extend(first - 50, 1.0, is_urgent=False)
    assert first < reference.length < 2_000
    reference.drop_frames(first - 50)
    assert reference.kept_frames == reference.length - first + 50


def test_an_unfinished_clause_waits_unless_it_is_urgent(voice: ReferenceVoice) -> None:
    """A single word is synthesized only if audio waits for it."""
    reference = GrowingReference(voice, voice.voice_for("en"))
    reference.append(split_words("Hello"))
    reference.extend(0, 1.0, is_urgent=False)
    assert reference.length == 0
    reference.extend(0, 1.0, is_urgent=True)
    assert reference.length > 0


def test_words_are_popped_by_their_offset(voice: ReferenceVoice) -> None:
    """The words before the offset are returned, synthesized and waiting ones apart."""
    text = f"{TEXT} " * 20
    reference = reference_of(voice, text)
    words = split_words(text)
    synthesized, waiting = reference.pop_words(words[-3].char_start)
    assert [row.word for row in synthesized] + waiting == words[:-3]
    assert synthesized
    assert waiting


def test_a_slow_voice_gets_a_slow_reference(voice: ReferenceVoice) -> None:
    """At almost half the pace it has almost twice the frames; normal lengths stay equal."""
    normal, slow = (GrowingReference(voice, voice.voice_for("en")) for _ in range(2))
    for reference, duration_ratio in ((normal, 1.0), (slow, 1.8)):
        reference.append(split_words(TEXT))
        reference.extend(0, duration_ratio, is_urgent=True)
    assert 1.4 < slow.words[-1].end_frame / normal.words[-1].end_frame < 2.0
    assert slow.words[1].normal_frames == pytest.approx(normal.words[1].normal_frames, rel=0.3)


def test_kanji_have_the_frames_of_their_readings(voice: ReferenceVoice) -> None:
    """A kanji has the length of its reading, not of its spelled-out name."""
    reference = reference_of(voice, "今日は木曜日です。", language="ja")
    assert all(row.end_frame - row.first_frame < 50 for row in reference.words)
