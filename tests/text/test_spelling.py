"""Codes and phone numbers are spelled in groups."""

import pytest
from hypothesis import given

from testbed.texts import any_text
from voiceagent_tts.text.markup import spell
from voiceagent_tts.text.words import is_spoken


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("A7-42X", "A-7, 4 2 X"),
        ("555-123-4567", "5 5 5, 1 2 3, 4 5 6 7"),
        ("5551234567", "5 5 5, 1 2 3, 4 5 6 7"),
        ("(555) 123", "5 5 5, 1 2 3"),
        ("+44 20 7946 0958", "+4 4, 2 0, 7 9 4 6, 0 9 5 8"),
        ("12345", "1 2 3, 4 5"),
        ("abc", "A-B-C"),
        ("ß", "ß"),
        ("京a1", "京 A-1"),
        ("", ""),
        ("--- !", ""),
    ],
)
def test_groups(code: str, said: str) -> None:
    """Separators and every third character of a long run are pauses."""
    assert spell(code) == said


@given(any_text())
def test_every_letter_and_digit_is_spelled(code: str) -> None:
    """In order, each once; nothing is said where there is none."""

    def letters(text: str) -> str:
        return "".join(filter(str.isalnum, text)).upper()

    assert letters(spell(code)) == letters(code)
    assert bool(spell(code)) == is_spoken(code) or not any(map(str.isalnum, code))
