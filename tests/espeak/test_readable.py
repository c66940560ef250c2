"""Texts that are changed for espeak-ng. `test_robustness` speaks them."""

import pytest

from voiceagent_tts.espeak.readable import readable


@pytest.mark.parametrize(
    "text",
    [
        "It's a well-known 5.30 o'clock tea, e.g. Assam. That's all? " * 6,
        "https://example.com/a/path?with=a&long=query#and-a-fragment",
        "好的，我们走吧。" * 30,
        "नमस्ते - यह",
        "[[" + "a|" * 99 + "a]]",
    ],
)
def test_what_espeak_can_read_stays(text: str) -> None:
    """Sentences, addresses, scripts without spaces and names of phonemes are not changed."""
    assert readable(text, "gmw/en-US") == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("run `make test`", "run  make test "),
        ("wait---can -- we-", "wait-- can -- we-"),
        ("hi;-I a-b '-en (-5) -a", "hi; I a-b ' en (-5) -a"),
        ("a ⣿ b", "a   b"),
        ("I" * 130, "I" * 59 + " " + "I" * 59 + " " + "I" * 10),
    ],
)
def test_what_voices_of_some_languages_cannot_read_is_a_space(text: str, read: str) -> None:
    """Backticks, hyphens after a mark, braille, and every 60th letter of what is no word."""
    assert readable(text, "gmw/en-US") == read


@pytest.mark.parametrize(("text", "read"), [("Ⓜ ⓜ", "M m"), ("ॠ ૠ", "ऋ ઋ"), ("① ⑪", "① ⑪")])
def test_letters_that_end_a_voice_are_the_same_letters(text: str, read: str) -> None:
    """Circled letters lose their circle, and long vocalic letters are short."""
    assert readable(text, "gmw/en-US") == read


@pytest.mark.parametrize(
    ("voice", "text", "read"),
    [
        ("roa/pt+f2", "©Đorđević 🥌 100 %", " Đorđević   100 %"),
        ("roa/pt", "©Øre", " Øre"),
        ("gmw/de", "🤠 Жук", "  Жук"),
        ("roa/pt", "José 😀", "José 😀"),
        ("zle/ru", "© Жук 🥌", "© Жук 🥌"),
    ],
)
def test_some_voices_do_not_name_some_symbols(voice: str, text: str, read: str) -> None:
    assert readable(text, voice) == read
