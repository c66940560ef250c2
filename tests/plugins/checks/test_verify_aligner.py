"""Verification of an aligner distinguishes computation from training."""

from pathlib import Path

import pytest

from testbed.tiny_aligner import write_tiny_aligner
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.plugins.checks.verify_aligner import TEXTS, KnownSpeech, compare
from voiceagent_tts.plugins.checks.verify_command import verify_aligner
from voiceagent_tts.plugins.forced.prompt import Clip


def spoken(moves_ms: list[int], guessed: int = 0) -> tuple[KnownSpeech, list[WordTimestamp]]:
    """Build ten words of 300 ms and their times, moved by `moves_ms`.

    The true times of the first `guessed` words are marked as guesses.
    """
    truth: list[WordTimestamp] = []
    found: list[WordTimestamp] = []
    for place in range(10):
        word = Word("word", 5 * place, 5 * place + 4)
        start, length = ms_to_samples(400 * place), ms_to_samples(300)
        move = ms_to_samples(moves_ms[place % len(moves_ms)])
        truth.append(WordTimestamp(word, start, start + length, confidence=place >= guessed))
        found.append(WordTimestamp(word, start + move, start + move + length, confidence=1.0))
    clip = Clip(tuple(time.word for time in truth), bytes(8 * SAMPLE_RATE_HZ), "en")
    return KnownSpeech(clip, tuple(truth)), found


@pytest.mark.parametrize(
    ("moves_ms", "expected", "holds"),
    [
        ([0], "error 0 ms, bias +0 ms, 10 words", True),
        ([40, -40], "error 40 ms, bias +0 ms, 10 words", True),
        ([92], "error 92 ms, bias +92 ms, 10 words", False),
        ([-46], "error 46 ms, bias -46 ms, 10 words", False),
        ([200, -200], "error 200 ms, bias +0 ms, 10 words", False),
    ],
)
def test_error_and_bias_are_told_apart(moves_ms: list[int], expected: str, holds: bool) -> None:
    """Errors to both sides count as error; errors to one side also count as bias."""
    check = compare(*spoken(moves_ms))
    assert (check.found, check.holds) == (expected, holds)


def test_a_guessed_truth_does_not_count() -> None:
    """Words whose true time is a guess are left out."""
    assert compare(*spoken([500, 0, 0, 0, 0, 0, 0, 0, 0, 0], guessed=1)).found == (
        "error 0 ms, bias +0 ms, 9 words"
    )


def test_random_weights_compute_and_hear_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random weights fail only the words of ten languages, spoken by the embedded voice."""
    assert not verify_aligner(str(write_tiny_aligner(tmp_path)), "cpu", None)
    table = capsys.readouterr().out
    assert f"{len(TEXTS)} of {len(TEXTS) + 3} checks failed" in table
    assert table.count("words of ") == table.count("bad") == len(TEXTS) == 10


def test_a_folder_that_does_not_load_is_one_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file is named, and no other check runs."""
    folder = write_tiny_aligner(tmp_path)
    (folder / "model.safetensors").unlink()
    assert not verify_aligner(str(folder), "cpu", None)
    assert "1 of 1 checks failed" in capsys.readouterr().out
