"""Errors of known transcripts, as Seed-TTS's own program counts them."""

import pytest

from voiceagent_tts.plugins.bench.quality.words import WordErrors, normalised, unit_of, word_errors


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
