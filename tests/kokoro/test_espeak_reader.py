from bisect import bisect_left

import pytest

from voiceagent_tts.core import Reading
from voiceagent_tts.kokoro.espeak_reader import EspeakPronouncer
from voiceagent_tts.kokoro.network import Network
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import split_words


def knows(phoneme: str) -> bool:
    return Network.knows(None, phoneme)  # type: ignore[arg-type]  # no weights are read


def reader(language: str) -> EspeakPronouncer:
    return EspeakPronouncer(language, knows)


def said_for(language: str, text: str, readings: tuple[Reading, ...] = ()) -> dict[str, str]:
    phonemes = reader(language).phonemes(said(text, 0, readings))
    assert list(phonemes.offsets) == sorted(phonemes.offsets)
    assert len(phonemes.offsets) == len(phonemes.text)
    assert all(map(knows, phonemes.text))
    found = {}
    for word in split_words(text):
        start = bisect_left(phonemes.offsets, word.char_start)
        end = bisect_left(phonemes.offsets, word.char_end)
        found[word.text] = phonemes.text[start:end].strip()
    return found


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("es", "Hola, ¿cómo estás?", {"Hola,": "ˈola,", "¿cómo": "kˈomo", "estás?": "estˈas?"}),
        ("es", "Ocho chicos — bien...", {"Ocho": "ˈoʧo", "bien...": "bjˈen..."}),
        ("fr", "Les amis de la mer.", {"Les": "lez", "amis": "amˈi", "de": "də", "mer.": "mˈɛʁ."}),
        ("fr", "un « bon » vin", {"un «": "ˈœ̃ “", "bon »": "bˈɔ̃ ”", "vin": "vˈɛ̃"}),
        ("fr", "Le parking est gratuit.", {"Le": "lə", "parking": "pˈɑːkɪŋ", "est": "ɛ"}),
        ("it", "Il conto è di 12,50 euro.", {"conto": "kˈonto", "è": "e", "euro.": "ˈɛʊro."}),
        ("es", "el 好-hola", {"el": "el", "hola": "ˈola"}),
        ("pt-br", "Bom dia!", {"Bom": "bˈoŋ", "dia!": "ʤˈiæ!"}),
        ("hi", "आप कैसे हैं।", {"आप": "ˌaːp", "कैसे": "kˈɛːseː", "हैं।": "hɛ̃."}),
    ],
)
def test_a_text_is_read_with_kokoros_symbols(
    language: str, text: str, expected: dict[str, str]
) -> None:
    found = said_for(language, text)
    assert {word: found[word] for word in expected} == expected


@pytest.mark.parametrize(
    ("language", "text", "numbers"),
    [
        ("es", "Son 42,50 € a las 10:30.", ("42,50 €", "10:30.")),
        ("it", "Ho 3 cani e 25 gatti.", ("3", "25")),
        ("fr", "Il y a 80 places, et 3,5 km.", ("80", "3,5")),
        ("hi", "मेरे पास 5 रुपये हैं।", ("5",)),
    ],
)
def test_a_number_is_said_for_the_word_that_has_it(
    language: str, text: str, numbers: tuple[str, ...]
) -> None:
    """No word of the client is without a sound, however many are said for one."""
    found = said_for(language, text)
    assert all(found[number] for number in numbers)
    assert all(found.values())


@pytest.mark.parametrize("text", ["", " ", "...", "\U0001f600", "你好。", "\x00", "« »"])
def test_what_has_no_sound_gives_no_sound(text: str) -> None:
    """Marks may remain; nothing fails."""
    assert not reader("fr").phonemes(said(text, 0, ())).sounds or text == "你好。"


def test_a_pronunciation_replaces_what_is_read() -> None:
    """In IPA, with or without ties; one that Kokoro has no symbols for is read by its letters."""
    text = "Dile Xochitl ya."
    for ipa in ("ˈsotʃil", "ˈsot͡ʃil"):
        assert said_for("es", text, (Reading(5, 12, "Xochitl", ipa),))["Xochitl"] == "ˈsoʧil"
    assert reader("es").can_say("ˈsotʃil") and not reader("es").can_say("ʘǂ")
    letters = said_for("es", text)["Xochitl"]
    assert said_for("es", text, (Reading(5, 12, "Xochitl", "ʘǂ"),))["Xochitl"] == letters
    assert said_for("es", text, (Reading(5, 12, "sochil", None),))["Xochitl"] == "soʧˈil"
