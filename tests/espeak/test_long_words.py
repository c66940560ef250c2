"""Words that are divided for espeak-ng. `test_robustness` speaks them."""

import pytest

from voiceagent_tts.espeak.long_words import divided


@pytest.mark.parametrize(
    "text",
    [
        "It's 5 o'clock. That's all? " * 20,
        "https://example.com/a/path?with=a&long=query#and-a-fragment",
        "好的，我们走吧。" * 30,
        "[[" + "a|" * 99 + "a]]",
    ],
)
def test_words_that_espeak_can_read_stay(text: str) -> None:
    """Sentences, addresses, scripts without spaces and names of phonemes are not changed."""
    assert divided(text) == text


@pytest.mark.parametrize("unit", ["'s", "’s", "?s", ".é"])
def test_a_word_with_many_marks_is_divided_in_its_place(unit: str) -> None:
    """No part has 20 marks, and every other character keeps its place."""
    text = "Hi. " + unit * 125
    parts = divided(text)
    assert len(parts) == len(text)
    assert all(part.count(unit[0]) < 20 for part in parts.split())
    assert all(one in (other, " ") for one, other in zip(parts, text, strict=True))
