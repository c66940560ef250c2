"""Errors of known transcripts, as Seed-TTS's own program counts them."""

import pytest

from voiceagent_tts.plugins.recordings.word_errors import (
    WordErrors,
    normalised,
    said_errors,
    said_words,
    unit_of,
    word_errors,
)


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("Hello, World!", "en", "hello world"),
        ("It's  well-known.", "en", "it's wellknown"),
        ("It’s $5…", "en", "it's 5"),
        ("你好，世界。", "zh", "你 好 世 界"),
        ("こんにちは、 世界", "ja", "こ ん に ち は 世 界"),
        ("안녕 하세요!", "ko", "안 녕 하 세 요"),
        ("Grüße aus Köln", "de", "grüße aus köln"),
        ("", "en", ""),
    ],
)
def test_texts_are_normalised_as_the_paper_does(text: str, language: str, words: str) -> None:
    """Punctuation goes, apostrophes stay; Chinese, Japanese and Korean become characters."""
    assert normalised(text, language) == words


@pytest.mark.parametrize(
    ("text", "heard", "language", "errors"),
    [
        ("One two three.", "one two three", "en", WordErrors(3, 0, 0, 0)),
        ("One two three.", "one too three", "en", WordErrors(3, 1, 0, 0)),
        ("One two three.", "one three", "en", WordErrors(3, 0, 1, 0)),
        ("One two three.", "one two um three", "en", WordErrors(3, 0, 0, 1)),
        ("One two three.", "", "en", WordErrors(3, 0, 3, 0)),
        ("你好，世界。", "你好世间", "zh", WordErrors(4, 1, 0, 0)),
        ("...", "hello there", "en", WordErrors(0, 0, 0, 2)),
        ("...", "", "en", WordErrors(0, 0, 0, 0)),
    ],
)
def test_errors_are_counted_by_kind(
    text: str, heard: str, language: str, errors: WordErrors
) -> None:
    """Substitutions, deletions and insertions, each for what it is."""
    assert word_errors(text, heard, language) == errors


def test_rates_are_for_each_expected_word() -> None:
    """Four errors in two words are 200 %; words where none were expected are 100 %."""
    assert WordErrors(2, 1, 1, 2).rate == 2.0
    assert WordErrors(4, 0, 0, 1).insertion_rate == 0.25
    assert (WordErrors(0, 0, 0, 2).rate, WordErrors(0, 0, 0, 0).rate) == (1.0, 0.0)
    assert [unit_of(each) for each in ("en", "zh", "ko")] == ["WER", "CER", "CER"]


@pytest.mark.parametrize(
    ("text", "heard", "errors"),
    [
        ("Your total is $42.50.", "your total is forty-two dollars and fifty cents", 0),
        ("Say seven, please.", "Say 7 please.", 0),
        ("Dr. Smith is here at 9:30.", "Doctor Smith is here at nine thirty", 0),
        ("Write to help@example.com.", "Write to help at example dot com", 0),
        ("A well-known trick.", "a well known trick", 0),
        ("It's $5, isn’t it?", "It’s five dollars, isn't it?", 0),
        ("Your total is $42.50.", "Your total is $42.15.", 1),
    ],
)
def test_what_is_said_is_compared_however_it_is_written(text: str, heard: str, errors: int) -> None:
    """The paper's count has an error in each of these; here only another number is one."""
    found = said_errors(text, heard, "en")
    assert found.substituted + found.deleted + found.inserted == errors
    assert word_errors(text, heard, "en").rate > 0


def test_spaces_of_korean_are_no_words() -> None:
    """Writers set them as they like; what is said is compared by syllables."""
    assert said_errors("저는 할 수 있다고 해요.", "저는 할수 있다고 해요", "ko").rate == 0


def test_what_is_said_for_a_word_has_that_word_as_its_owner() -> None:
    """One word of the text, an amount, is six words of speech."""
    words = said_words("Pay $42.50 now.", "en")
    assert [word.text for word in words] == "pay forty two dollars and fifty cents now".split()
    assert [word.owner for word in words] == [0, 1, 1, 1, 1, 1, 1, 2]
