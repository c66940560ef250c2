"""Comparing the precisions of a CPU, on a tiny model."""

from pathlib import Path

import pytest
import torch

from benchmarks.engine.precisions import Rounding, errors, table_of

CHECKPOINT = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"


def test_an_error_is_relative_to_the_exact_output() -> None:
    """An output that is a tenth too large has an error of a tenth."""
    exact = torch.tensor([3.0, 4.0])
    assert errors({"a": exact * 1.1}, {"a": exact})["a"] == pytest.approx(0.1)


def test_fewer_bits_round_more() -> None:
    """Every layer and head has an error; it grows as the bits become fewer."""
    rounding = Rounding(CHECKPOINT, frames=4)
    found = {precision: rounding.of(precision) for precision in ("float32", "bfloat16", "int8")}
    logits = [
        found[precision]["relative_errors"]["predictor logits"]
        for precision in ("float32", "bfloat16", "int8")
    ]
    assert logits[0] < 1e-4 < logits[1] < 0.1
    assert 1e-3 < logits[2] < 0.5
    names = set(found["int8"]["relative_errors"])
    assert {"talker 0", "predictor 0", "talker logits", "predictor logits"} <= names
    assert found["float32"]["top_1_agreement"] == 1.0
    times = {"ms_per_frame": 1.0, "memory_mb": 2, "peak_mb": 3}
    assert table_of({"int8": {**times, **found["int8"]}}).row_count == 1
