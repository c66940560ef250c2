"""`voiceagent-tts doctor --gpu`: the answer without a GPU, and the meaning of the figures."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from testbed.base_install import make_base_install, run_in_base_install
from testbed.command_line import CommandHere
from voiceagent_tts.plugins.checks.gpu import card_finding, rows_finding, speed_finding
from voiceagent_tts.plugins.checks.self_test import Speed
from voiceagent_tts.plugins.checks.step_times import StepTime


def speed(steps_ms: Sequence[tuple[int, float]], free_bytes: int) -> Speed:
    """Build measurements with pages of 25 MB and 3 MB of other memory per row."""
    times = tuple(StepTime(rows, 200, ms / 1000, 0, 0, 0, 0, 0) for rows, ms in steps_ms)
    return Speed(times, 25_000_000, 3_000_000, free_bytes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_machine_without_a_gpu_is_told_what_to_do(command_here: CommandHere) -> None:
    """Status 1, one finding with its remedy, and nothing is loaded."""
    outcome = command_here("doctor", "--gpu")
    assert outcome.status == 1, outcome.output
    assert re.search(r"^bad +CUDA +torch \d\S+ ", outcome.output, re.MULTILINE)
    assert re.search(r"^ +-> install ", outcome.output, re.MULTILINE)
    assert outcome.output.endswith("No GPU here can serve yet.\n")


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    """On the base install the answer is a line and not a traceback."""
    make_base_install(tmp_path)
    result = run_in_base_install(tmp_path, "-m", "voiceagent_tts", "doctor", "--gpu")
    assert result.returncode == 1
    assert "torch is not installed" in result.stdout
    assert "-> pip install 'voiceagent-tts[qwen3]'" in result.stdout
    assert result.stderr == ""


def test_a_card_without_bfloat16_is_flagged() -> None:
    """A GPU without bfloat16 can serve in float16; little memory is a note, too."""
    old = card_finding("Tesla T4", 16 * 2**30, has_bfloat16=False)
    assert (old.verdict, old.detail) == ("note", "Tesla T4, 16 GiB, no bfloat16")
    assert "float16" in old.remedy
    assert card_finding("NVIDIA L4", 24 * 2**30, has_bfloat16=True).verdict == "ok"
    assert card_finding("NVIDIA RTX 3050", 4 * 2**30, has_bfloat16=True).verdict == "note"


def test_rows_are_the_fewer_of_memory_and_time() -> None:
    """The smaller number counts: of rows that fit into memory, and of rows that are in time.

    A row of a minute takes four pages, 103 MB in all; a step may take four fifths of a frame.
    """
    in_time = rows_finding(speed([(1, 4), (32, 34), (64, 66)], 100 * 103_000_000))
    assert in_time.detail == "memory fits 100 rows of one minute; speed allows 62"
    assert in_time.remedy == "serve with --rows 62"
    in_memory = rows_finding(speed([(1, 4), (32, 34)], 5 * 103_000_000))
    assert in_memory.detail == "memory fits 5 rows of one minute; speed allows at least 32"
    assert in_memory.remedy == "serve with --rows 5"
    assert rows_finding(speed([(1, 4)], 50_000_000)).verdict == "bad"


def test_a_gpu_that_is_too_slow_is_told_so() -> None:
    """A GPU is too slow if one row's frame takes longer to make than to play."""
    late = speed_finding("a model", speed([(1, 81.0)], 0).times)
    assert late.verdict == "bad"
    assert "80 ms" in late.remedy
    fine = speed_finding("a model", speed([(1, 4.04), (32, 5.0)], 0).times)
    assert fine.verdict == "ok"
    assert fine.detail == "a model: a step takes 4.0 ms with 1, 5.0 ms with 32 rows"
