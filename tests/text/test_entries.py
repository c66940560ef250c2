"""Where lexicon entries match: whole words, letter case, Unicode forms, the longest first."""

import tracemalloc
import unicodedata

import pytest

from voiceagent_tts.lexicon import Pronunciation
from voiceagent_tts.text.entries import UNDECIDED, EntryMatcher, Match, match_first


def matcher(*written: str) -> EntryMatcher:
    """A lexicon in which each entry says itself."""
    return EntryMatcher({each: Pronunciation(each, None) for each in written})


def found(lexicon: EntryMatcher, text: str) -> list[tuple[str, str]]:
    matches: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = lexicon.match(text, at, text[at - 1] if at else "", is_end=True)
        assert not isinstance(match, type(UNDECIDED))
        if match is None:
            at += 1
            continue
        matches.append((text[at : match.char_end], match.pronunciation.say or ""))
        at = match.char_end
    return matches


@pytest.mark.parametrize(
    ("entry", "text", "matched"),
    [
        ("nginx", "use nginx, NGINX or Nginx's", ["nginx", "NGINX", "Nginx"]),
        ("nginx", "nginxes enginx nginx2 2nginx", []),
        ("nginx", "_nginx_ (nginx) nginx_conf", ["nginx"] * 3),
        ("US", "the US and us", ["US"]),
        (
            "New York",
            "New York, New\nYork, New  York, Newyork, New Yorker",
            ["New York", "New\nYork"],
        ),
        ("C++", "C++ c++ C+++ C++x", ["C++", "C++", "C++"]),
        (".net", "in .NET, a.net", [".NET", ".net"]),
        ("straße", "Straße STRASSE straße", ["Straße", "STRASSE", "straße"]),
        ("重庆", "在重庆吃，重庆市", ["重庆", "重庆"]),
        ("ギガ", "5ギガ速い", ["ギガ"]),
        ("café", "café cafe\u0301 cafe", ["café", "cafe\u0301"]),
        ("cafe", "cafe\u0301 cafe", ["cafe"]),
        ("abc", "ＡＢＣ", ["ＡＢＣ"]),
        ("서울", "서울 서울에서", ["서울"]),
    ],
)
def test_matches(entry: str, text: str, matched: list[str]) -> None:
    """Whole words in any Unicode form; capital letters in the entry ask for capital letters."""
    assert [written for written, _ in found(matcher(entry), text)] == matched
    decomposed = matcher(unicodedata.normalize("NFD", entry))
    assert [written for written, _ in found(decomposed, text)] == matched


def test_the_longest_entry_wins() -> None:
    """Also where the beginning of a longer one turns out not to fit."""
    lexicon = matcher("New", "New York", "New York City", "東京", "東京都")
    assert found(lexicon, "New York Town") == [("New York", "New York")]
    assert found(lexicon, "New York City") == [("New York City", "New York City")]
    assert found(lexicon, "東京都と東京") == [("東京都", "東京都"), ("東京", "東京")]


def test_the_exact_letter_case_wins() -> None:
    """An entry as the text is written comes before the one for every letter case."""
    lexicon = matcher("who", "WHO")
    assert found(lexicon, "who WHO Who") == [("who", "who"), ("WHO", "WHO"), ("Who", "who")]


def test_the_first_lexicon_wins() -> None:
    """Among equally long matches; a longer one of a later lexicon comes before it."""
    own, shared = (
        EntryMatcher({"a": Pronunciation("own", None)}),
        EntryMatcher({"a": Pronunciation("x", None), "a b": Pronunciation("both", None)}),
    )
    lexicons = (own, shared)
    assert match_first(lexicons, "a", 0, "", is_end=True) == Match(1, Pronunciation("own", None))
    assert match_first(lexicons, "a b", 0, "", is_end=True) == Match(3, Pronunciation("both", None))


@pytest.mark.parametrize("text", ["n", "ngin", "nginx", "NEW", "new yor"])
def test_the_beginning_of_an_entry_is_undecided(text: str) -> None:
    """Until the character after it is known; at the end of the text it is decided."""
    lexicon = matcher("nginx", "new york")
    assert lexicon.match(text, 0, " ", is_end=False) is UNDECIDED
    assert lexicon.match(text, 0, " ", is_end=True) is not UNDECIDED


@pytest.mark.parametrize("text", ["x", "nx", "nginx ", "new-"])
def test_other_text_is_decided_at_once(text: str) -> None:
    """So it is not held back."""
    assert matcher("nginx", "new york").match(text, 0, " ", is_end=False) is not UNDECIDED


def test_a_lexicon_takes_little_more_memory_than_its_text() -> None:
    """The server keeps lexicons of many clients: the longest is 50 kB of written forms."""
    entries = {f"{number:0100d}": Pronunciation("number", None) for number in range(500)}
    tracemalloc.start()
    try:
        lexicon = EntryMatcher(entries)
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 500_000
    assert found(lexicon, f"{7:0100d}") == [(f"{7:0100d}", "number")]
