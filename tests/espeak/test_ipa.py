"""IPA as espeak says it: by the names of its own phonemes."""

import pytest

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.espeak.catalogue import EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.espeak.speech import Delivery, Speech, can_say_ipa, speak

ENGLISH = EspeakVoice("gmw/en-US", 50)


def printed(library: EspeakLibrary, ipa: str, voice: str) -> str:
    library._ipa_tables.clear()  # a new table leaves the voice set, and brackets read
    names = library.ipa_table(voice).names_of(ipa)
    assert names is not None, ipa
    return library._phonemes(names, 2).replace("ˈ", "").strip()


@pytest.mark.parametrize(
    ("language", "ipa", "said"),
    [
        ("en-us", "ʃɪˈvɔːn", "ʃɪvɔːn"),
        ("en-us", "nuː jɔːɹk", "nuː jɔːɹk"),
        ("en-us", "/t͡ʃuːz/", "tʃuːz"),
        ("de", "bax", "bax"),
        ("de", "ˈmʏnçən", "mʏnçən"),
        ("fr", "ʁəno", "ʁəno"),
        ("fr", "mɔ̃ʁeal", "mɔ̃ʁeal"),
        ("es", "xoˈse", "xose"),
        ("it", "ˈɲakka", "ɲakka"),
        ("ru", "ˈputin", "putin"),
        ("pt-br", "ˈsɐ̃w", "sɐ̃w"),
    ],
)
def test_a_voice_says_ipa(
    library: EspeakLibrary, catalogue: VoiceCatalogue, language: str, ipa: str, said: str
) -> None:
    """With the sounds of its language; a sound that it lacks becomes the nearest one."""
    assert printed(library, ipa, catalogue.resolve("default", language).identifier) == said


@pytest.mark.parametrize("ipa", ["ʘa", "hello!", "t$", "", "ˈ", "🎉"])
def test_other_symbols_are_refused(library: EspeakLibrary, ipa: str) -> None:
    """So that the caller says the letters."""
    assert library.ipa_table("gmw/en-US").names_of(ipa) is None


def speech_of(library: EspeakLibrary, segment: Segment) -> Speech:
    (piece,) = split_pieces(segment, "en")
    assert can_say_ipa(piece, ENGLISH, library)
    delivery = Delivery(ENGLISH, 175, has_end_pause=False, trims_lead=False)
    speech = speak(library, piece, delivery, lambda: True)
    assert speech is not None
    return speech


def test_a_reading_sounds_as_it_is_said(library: EspeakLibrary) -> None:
    said, *plain = speech_of(library, Segment("Say engine x now.", 0)).words
    for reading in (Reading(4, 9, "engine x"), Reading(4, 9, "nginx", "ˈɛndʒɪn ˈɛks")):
        words = speech_of(library, Segment("Say xxxxx now.", 0, (reading,))).words
        spans = [(each.word.char_start, each.word.char_end) for each in words]
        assert spans == [(0, 3), (4, 9), (10, 14)]
        assert all(each.is_exact for each in words)
        starts = [each.start_sample for each in words]
        expected = [said.start_sample, plain[0].start_sample, plain[2].start_sample]
        assert starts == pytest.approx(expected, abs=1_200), "50 ms"


def test_ipa_that_a_voice_lacks_is_said_in_letters(library: EspeakLibrary) -> None:
    """And Japanese, which is read as kana, takes none."""
    (piece,) = split_pieces(Segment("xxxx", 0, (Reading(0, 4, "word", "ʘʘ"),)), "en")
    assert not can_say_ipa(piece, ENGLISH, library)
    delivery = Delivery(ENGLISH, 175, has_end_pause=False, trims_lead=False)
    speech = speak(library, piece, delivery, lambda: True)
    (plain,) = split_pieces(Segment("word", 0), "en")
    spoken = speak(library, plain, delivery, lambda: True)
    assert speech is not None
    assert spoken is not None
    assert len(speech.pcm) == pytest.approx(len(spoken.pcm), rel=0.02)
    japanese = EspeakVoice("jpx/ja", 50, reads_kana_only=True)
    (kana,) = split_pieces(Segment("xx", 0, (Reading(0, 2, "とう", "toː"),)), "en")
    assert not can_say_ipa(kana, japanese, library)
    assert speak(library, kana, Delivery(japanese, 175, False, False), lambda: True) is not None
