"""Words are verbatim, in order, without overlap, and contain every letter and digit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.texts import agent_text, any_text, chunked
from testbed.timing import is_linear
from voiceagent_tts.core import Word
from voiceagent_tts.text.words import is_spoken, split_words
from voiceagent_tts.word_times import aligned_words as module
from voiceagent_tts.word_times.aligned_words import GrowingWords


def words(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there, world!", ["Hello", "there,", "world!"]),
        ('She said "no" (twice).', ["She", "said", '"no"', "(twice)."]),
        ("well-known example.com it's 3.5", ["well-known", "example.com", "it's", "3.5"]),
        ("¿Qué tal? Él", ["¿Qué", "tal?", "Él"]),
        ("snake_case a/b C# $42.50", ["snake_case", "a/b", "C#", "$42.50"]),
        ("안녕하세요, 반갑습니다!", ["안녕하세요,", "반갑습니다!"]),
        ("Привет, мир", ["Привет,", "мир"]),
        ("नमस्ते आप", ["नमस्ते", "आप"]),
    ],
)
def test_white_space_separates_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好。", ["你", "好。"]),
        ("人々", ["人", "々"]),
        ("コーヒー", ["コー", "ヒー"]),
        ("ちょっと", ["ちょっ", "と"]),
        ("ウィキ", ["ウィ", "キ"]),
        ("か\u3099き", ["か\u3099", "き"]),
        ("ｶﾞｯﾂ", ["ｶﾞｯ", "ﾂ"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("っと", ["っ", "と"]),
    ],
)
def test_han_and_kana_are_words_by_base_character(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我用Python 3.11写", ["我", "用", "Python", "3.11", "写"]),
        ("iPhone手机", ["iPhone", "手", "机"]),
        ("约$42.50元", ["约", "$42.50", "元"]),
        (
            "他说：「你好，再见」「好」",
            list("他") + ["说：", "「你", "好，", "再", "见」", "「好」"],
        ),
        ("用Python，Java", ["用", "Python，", "Java"]),
        ("GPT-4是", ["GPT-4", "是"]),
        ("大韓民國은", ["大", "韓", "民", "國", "은"]),
    ],
)
def test_a_latin_run_inside_cjk_is_one_word(text: str, expected: list[str]) -> None:
    """Closing punctuation joins the word on its left, opening punctuation the one on its right."""
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Great! 🎉 Next", ["Great! 🎉", "Next"]),
        ("one --- two", ["one ---", "two"]),
        ("🎉 -- Hi there", ["🎉 -- Hi", "there"]),
        ("end 👍🏽 \n 👩‍👩‍👧", ["end 👍🏽 \n 👩‍👩‍👧"]),
        ("oui » !", ["oui » !"]),
    ],
)
def test_tokens_without_letters_join_the_word_before(text: str, expected: list[str]) -> None:
    """Emoji and dashes belong to the word before them, or to the first word."""
    assert words(text) == expected


@pytest.mark.parametrize("text", ["", " \n", "🎉", "--- ***", "\u0301", "\u3099", "\ud83d", "__"])
def test_a_text_without_letters_has_no_words(text: str) -> None:
    assert split_words(text) == []
    assert not is_spoken(text)


@settings(deadline=None)
@given(agent_text() | any_text())
def test_words_are_verbatim_ordered_and_complete(text: str) -> None:
    """Every letter and digit is in exactly one word; words are spans without overlap."""
    found = split_words(text, 7)
    covered: list[int] = []
    for word in found:
        assert text[word.char_start - 7 : word.char_end - 7] == word.text
        assert not word.text[0].isspace()
        assert not word.text[-1].isspace()
        assert is_spoken(word.text)
        covered += range(word.char_start - 7, word.char_end - 7)
    assert covered == sorted(set(covered))
    assert {i for i, character in enumerate(text) if not character.isspace()} <= set(covered) | (
        set() if found else set(range(len(text)))
    )


@pytest.mark.parametrize("unit", ["a", "好", "a好", "好，", "a.", "!", "#", "🎉", "a ", "ー", "「"])
def test_time_is_linear(unit: str) -> None:
    """Eight times the text takes about eight times as long, even without white space."""
    assert is_linear(split_words, unit)
    assert is_linear(lambda text: split_words("好" + text), unit)


@given(any_text().flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
def test_words_of_a_growing_text_are_those_of_the_whole(case: tuple[str, list[str]]) -> None:
    text, deltas = case
    growing = GrowingWords()
    words = [word for delta in deltas for word in growing.push(delta)]
    assert words + growing.finish() == split_words(text)


def test_text_after_finish_begins_a_word() -> None:
    """After `finish` the offsets continue, and the finished word does not grow."""
    growing = GrowingWords()
    words = growing.push("one two") + growing.finish() + growing.push("three four")
    assert words + growing.finish() == [
        Word("one", 0, 3), Word("two", 4, 7), Word("three", 7, 12), Word("four", 13, 17),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["there", "(there", "「好」ab"])
@pytest.mark.parametrize("start", ["", "Hi ", "one (two"])
@pytest.mark.parametrize("unit", ["😀 ", "🎉", "- ", " ", "a"])
def test_a_long_word_is_split_at_the_same_place(start: str, unit: str, end: str) -> None:
    """The parts of a word of more than 1,000 characters do not depend on the deltas."""
    text = start + (unit * 1300)[:1300] + end * 220
    whole = GrowingWords()
    expected = whole.push(text) + whole.finish()
    for chars in (1, 999):
        growing, parts = GrowingWords(), list[Word]()
        for at in range(0, len(text), chars):
            parts += growing.push(text[at : at + chars])
        assert parts + growing.finish() == expected


@pytest.mark.parametrize("unit", ["- ", "🎉 ", "!", " ", "\0"])
def test_text_without_words_is_scanned_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a text has no letter, each of its characters is examined once."""
    scanned_chars = 0

    def counting(text: str, char_base: int = 0) -> list[Word]:
        nonlocal scanned_chars
        scanned_chars += len(text)
        return split_words(text, char_base)

    monkeypatch.setattr(module, "split_words", counting)
    growing, text = GrowingWords(), unit * 300
    for character in text:
        assert growing.push(character) == []
    assert scanned_chars == len(text)
    grown = growing.push("on") + growing.push("e two") + growing.finish()
    assert grown[-1].text == "two"
    assert " ".join(word.text for word in grown) == f"{text}one two".strip()
