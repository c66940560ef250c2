import pytest

from voiceagent_tts.aligner.online.phones import CONSONANTS, PHONES, SILENCE, VOWELS, phones_of
from voiceagent_tts.espeak.library import EspeakLibrary


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
    names = EspeakLibrary.open().phoneme_names
    silent = [name for name in names if spelled(name) == SILENCE]
    assert len(silent) <= 0.04 * len(names), silent
