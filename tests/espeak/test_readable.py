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
    assert readable(text, "gmw/en-US") == text


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
