"""Numbers that a speaker reads otherwise than the embedded voice does."""

import numpy as np
import pytest

from testbed.known_speech import read_as
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.aligner.online.espeak_reference import other_readings

FRAME = (
    "Your code is {}, and please keep it until you arrive at the desk. "
    "Then show it to my colleague there."
)


@pytest.mark.parametrize(
    ("word", "readings"),
    [
        ("4471,", ("4 4 7 1", "44 71")),
        ("1465", ("1 4 6 5", "1465", "14 65")),
        ("$42.50.", ("4 2 5 0", "42 50")),
        ("(555-0123)", ("5 5 5 0 1 2 3",)),
        ("471", ()),
        ("B2B", ()),
        ("word", ()),
        ("1" * 17, ()),
    ],
)
def test_readings(word: str, readings: tuple[str, ...]) -> None:
    """Long numbers are also read digit by digit and in pairs, years as numbers."""
    assert other_readings(word) == readings


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("4471", "four four seven one"),
        ("4471", "forty four seventy one"),
        ("1465", "fourteen sixty five"),
        ("1465", "one thousand four hundred sixty five"),
        ("8315526", "eight three one five five two six"),
        ("4407183926", "four four zero seven one eight three nine two six"),
        ("$42.50", "forty two fifty"),
        ("4471", "the one that you had before"),
    ],
)
def test_no_reading_loses_the_rest(number: str, said: str) -> None:
    """The words after a number are found, however it is read."""
    spoken = read_as(FRAME, number, said, "m5")
    session = OnlineAligner().open("en", "m5")
    session.append([word.word for word in spoken.words])
    found = [
        word
        for at in range(0, len(spoken.pcm), 3840)
        for word in session.push(spoken.pcm[at : at + 3840])
    ]
    found += session.finish()
    errors_ms = np.array(
        [
            abs(ours.start_sample - true.start_sample) / 24
            for ours, true in zip(found, spoken.words, strict=True)
        ]
    )
    assert errors_ms[4:].max() < 200


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("4471", "four four seven one"),
        ("1465", "fourteen sixty five"),
        ("8315526", "eight three one five five two six"),
    ],
)
def test_words_after_a_long_number_are_told_before_they_begin(number: str, said: str) -> None:
    """Where the aligner tells of too few, they leave by an estimate, up to 3 s early."""
    spoken = read_as(FRAME, number, said, "m5")
    session = OnlineAligner().open("en", "m5")
    session.append([word.word for word in spoken.words])
    final = 0
    for count, at in enumerate(range(0, len(spoken.pcm), 3840), start=1):
        final += len(session.push(spoken.pcm[at : at + 3840]))
        begun = sum(word.start_sample < (count - 2) * 1920 for word in spoken.words)
        assert final + len(session.tentative()) >= min(begun + 1, len(spoken.words))
