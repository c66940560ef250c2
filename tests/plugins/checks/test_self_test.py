"""The self test of a device, run on a CPU: the same passes, without graphs."""

import pytest
import torch

from testbed.gpu import DEVICES
from testbed.parity_reference import REFERENCE
from voiceagent_tts.plugins.checks.self_test import (
    ROWS,
    graphs_agree,
    measure_speed,
    rows_in_memory,
    rows_worth_timing,
    stored_model,
    tiny_model,
)


@pytest.mark.thorough
@pytest.mark.parametrize("device", DEVICES)
def test_graphs_make_the_samples_of_plain_passes(device: str) -> None:
    """Graphs and plain passes make equal samples of a tiny model."""
    assert graphs_agree(tiny_model(torch.device(device)))


@pytest.mark.thorough
def test_a_checkpoint_s_steps_are_timed() -> None:
    """A checkpoint's steps are timed with as many rows as fit into memory."""
    folder = REFERENCE / "custom_voice-1b7"
    model = stored_model(folder, torch.device("cpu"), torch.float32)
    speed = measure_speed(model, free_bytes=50_000_000)
    assert [time.rows for time in speed.times] == [1, 32]
    assert all(time.step_s > 0 for time in speed.times)
    assert speed.row_bytes > 0
    assert 0 < speed.rows_in_memory < 100


def test_rows_take_whole_pages_and_what_lies_beside_them() -> None:
    """A minute is 750 frames and a prompt: four pages; five seconds fit into one."""
    assert rows_in_memory(1_000, page_bytes=20, row_bytes=20, context_s=60.0) == 10
    assert rows_in_memory(1_000, page_bytes=20, row_bytes=20, context_s=5.0) == 25
    assert rows_in_memory(90, page_bytes=20, row_bytes=20, context_s=60.0) == 0


def test_a_small_card_is_tested_with_few_rows() -> None:
    """Rows take at most half of the free memory; one row is always tried."""
    assert rows_worth_timing(100, page_bytes=100) == (1,)
    assert rows_worth_timing(64 * 100, page_bytes=100) == (1, 32)
    assert rows_worth_timing(512 * 100, page_bytes=100) == ROWS
