import pytest

from voiceagent_tts.aligner.online.phones import (
    CONSONANTS,
    PHONES,
    SILENCE,
    VOWELS,
    phone_spans,
    phones_of,
)
from voiceagent_tts.espeak.ipa import phoneme_names
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.speech import Phoneme


def spelled(phoneme: str, *, is_english: bool = True) -> str:
    """The phones of one of espeak's phonemes, joined."""
    return "".join(PHONES[phone] for phone in phones_of(phoneme, is_english=is_english))


def test_phones_differ() -> None:
    """No phone is listed twice, and silence is none of the others."""
    assert len(set(PHONES)) == len(PHONES) == 1 + len(VOWELS) + len(CONSONANTS)


@pytest.mark.parametrize(
    ("phoneme", "phones"),
    [
        ("'eI", "eI"),
        ("aU", "æu"),
        ("tS", "tʃ"),
        ("t2", "t"),
        ("u:", "u"),
        ("@L", "əl"),
        ("r", "ɹ"),
        ("_:", SILENCE),
        ("_|", SILENCE),
        ("(en)", SILENCE),
        ("?", SILENCE),
    ],
)
def test_a_phoneme_passes_through_phones(phoneme: str, phones: str) -> None:
    """Stress, length and colour are left out; a diphthong or affricate is two phones."""
    assert spelled(phoneme) == phones


def test_only_english_has_an_r_without_a_trill() -> None:
    """The letter is a tap or a trill elsewhere."""
    assert spelled("r", is_english=False) == spelled("*") != spelled("r")


def test_almost_every_phoneme_of_espeak_is_a_phone() -> None:
    """Of the names in espeak's data at most 4 % are silent here: modifiers, clicks and tones."""
    names = phoneme_names(EspeakLibrary.open()._data_path / "phontab")
    silent = [name for name in names if spelled(name) == SILENCE]
    assert len(silent) <= 0.04 * len(names), silent


def test_a_word_of_another_language_has_its_sounds() -> None:
    """A mark says which: an "r" is English in a German sentence, and a trill in an English one."""

    def spelled_in(*names: str, is_english: bool) -> str:
        phonemes = [Phoneme(name, 0, 0) for name in names]
        spans = phone_spans(phonemes, is_english=is_english)
        return "".join(PHONES[phone] for phones, _ in spans for phone in phones if phone)

    assert spelled_in("r", "(en)", "r", "(de)", "r", is_english=False) == "ɾɹɾ"
    assert spelled_in("r", "(ru)", "r", "(en)", "r", is_english=True) == "ɹɾɹ"
