import random
from bisect import bisect_left

import pytest

from voiceagent_tts.core import Reading
from voiceagent_tts.phonemes.reading import MAX_PHONEMES, LoadedVoice, Phonemes
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import split_words


def said_for(phonemes: Phonemes, text: str) -> dict[str, str]:
    found = {}
    for word in split_words(text):
        start = bisect_left(phonemes.offsets, word.char_start)
        end = bisect_left(phonemes.offsets, word.char_end)
        found[word.text] = phonemes.text[start:end].strip()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is $42.50.", {"$42.50.": "fˈɔɹTitˌu dˈɑləɹz ænd fˈɪfti sˈɛnts."}),
        ("At 10:30 am, go", {"10:30": "tˈɛn θˈɜɹTi", "am,": "ˌAˈɛm,"}),
        ("At 10:00 am today", {"10:00": "tˈɛn", "am": "ˌAˈɛm", "today": "tədˈA"}),
        ("on Jan. 5, 2020", {"Jan.": "ʤˈænjəwˌɛɹi", "5,": "fˈɪfθ,", "2020": "twˈɛnti twˈɛnti"}),
        ("$3.2 billion", {"$3.2": "θɹˈi pˈYnt tˈu", "billion": "bˈɪljən dˈɑləɹz"}),
        ("a 5 km run", {"5": "fˈIv", "km": "kəlˈɑməTəɹ", "run": "ɹˈʌn"}),
        ("a 5km run", {"5km": "fˈIv kəlˈɑməTəɹ", "run": "ɹˈʌn"}),
        ("Henry VIII left", {"Henry": "hˈɛnɹi", "VIII": "ði ˈAθ", "left": "lˈɛft"}),
        ("on 5 May we", {"5": "ðə fˈɪfθ ʌv", "May": "mˈA", "we": "wi"}),
        ("call 555-0123 now", {"555-0123": "fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn tˈu θɹˈi", "now": "nˈW"}),
        ("2 - 3 days", {"2 -": "tˈu tə", "3": "θɹˈi", "days": "dˈAz"}),
        ("Wait ™ here", {"Wait ™": "wˈAt", "here": "hˈɪɹ"}),
        ("yes !", {"yes !": "jˈɛs!"}),
        ("Dr. Smith’s", {"Dr.": "dˈɑktəɹ", "Smith’s": "smˈɪθs"}),
        ("你好 hello", {"你": "", "好": "", "hello": "həlˈO"}),
        ("the 日本語word, 好，yes", {"日": "", "word,": "wˈɜɹd,", "yes": "jˈɛs"}),
        ("你好-hello", {"好-": "", "hello": "həlˈO"}),
    ],
)
def test_each_word_has_what_is_said_for_it(
    text: str, expected: dict[str, str], voice: LoadedVoice
) -> None:
    found = said_for(voice.pronouncer.phonemes(said(text, 0, ())), text)
    assert {word: found[word] for word in expected} == expected


def test_readings_are_said_in_place_of_their_spans(voice: LoadedVoice) -> None:
    text = "(Siobhan) likes nginx, too."
    readings = (Reading(1, 8, "Siobhan", "ʃɪˈvɔːn"), Reading(16, 21, "engine x"))
    found = said_for(voice.pronouncer.phonemes(said(text, 0, readings)), text)
    assert found == {
        "(Siobhan)": "(ʃɪvˈɔn)",
        "likes": "lˈIks",
        "nginx,": "ˈɛnʤən ˈɛks,",
        "too.": "tˈu.",
    }


def test_a_long_string_is_divided_between_words(voice: LoadedVoice) -> None:
    whole = voice.pronouncer.phonemes(said("123456789 " * 25, 0, ()))
    parts = list(whole.parts())
    assert len(whole.text) > 2 * MAX_PHONEMES and len(parts) > 2
    assert all(len(part.text) <= MAX_PHONEMES for part in parts)
    assert all(part.text.endswith(" ") for part in parts[:-1])
    assert "".join(part.text for part in parts) == whole.text
    assert sum((part.offsets for part in parts), ()) == whole.offsets


@pytest.mark.parametrize(
    ("text", "sounds"),
    [("is " + "12345" * 10 + " ok", "wˈʌn tˈu θɹˈi fˈɔɹ fˈIv " * 10), ("is ❽① ok", "ˈATiwˌʌn ")],
)
def test_numbers_that_the_package_cannot_read_are_said(
    text: str, sounds: str, voice: LoadedVoice
) -> None:
    """Digits beyond the names of numbers are said one by one; digits in circles are digits."""
    assert sounds in voice.pronouncer.phonemes(said(text, 0, ())).text


def test_a_word_that_cannot_be_read_is_left_out(
    voice: LoadedVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words around it are said, at their places, where the package raises anything."""
    tokenize = voice.pronouncer._g2p.tokenize

    def fails(text: str) -> object:
        if "bad" in text:
            raise KeyError(text)
        return tokenize(text)

    monkeypatch.setattr(voice.pronouncer._g2p, "tokenize", fails)
    text = "A bad word."
    found = said_for(voice.pronouncer.phonemes(said(text, 0, ())), text)
    assert (found["bad"], found["word."]) == ("", "wˈɜɹd.")


@pytest.mark.parametrize("seed", range(3))
def test_offsets_never_decrease_whatever_the_text(seed: int, voice: LoadedVoice) -> None:
    rng = random.Random(seed)
    bits = [
        "10:30", "am", "$5", "$3.2", "billion", "Jan.", "5", "May", "2020", "St.", "No.", "#5",
        "VIII", "Chapter", "IV", "1/2", "3/4/2024", "€9", "5°C", "km", "-", "–", "™", "=", "x",
        "Dr.", "a.m.", "...", "é", "日本", "😀", "'", "5'6", '5"', "’", "&", "C++", "A.B.", "1e9",
    ]  # fmt: skip
    for _ in range(60):
        text = "".join(rng.choice(bits) + rng.choice(("", " ", " ")) for _ in range(12))
        phonemes = voice.pronouncer.phonemes(said(text, 7, ()))
        assert len(phonemes.text) == len(phonemes.offsets)
        assert list(phonemes.offsets) == sorted(phonemes.offsets), text
        assert all(7 <= offset < 7 + len(text) for offset in phonemes.offsets), text
        assert all(voice.network.knows(phoneme) for phoneme in phonemes.text)
