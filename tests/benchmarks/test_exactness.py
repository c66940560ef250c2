"""Graphs compared with plain passes, and a device compared with a CPU, on a tiny model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.engine import exactness
from benchmarks.engine.exactness import choices_against_cpu, graphs_against_plain
from testbed.gpu import DEVICES
from testbed.random_model import tiny_random_model
from voiceagent_tts.engine.model_source import FolderSource

MODEL = FolderSource(Path(__file__).parents[1] / "reference" / "custom_voice-1b7")


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_make_what_plain_passes_make(device: str) -> None:
    """Rows that start one after the other have bit-identical codes and samples in both."""
    found = graphs_against_plain(MODEL, torch.device(device), torch.float32, rows=3, frames=12)
    kernels = found.pop("kernels"), found.pop("kernel_fault")
    assert kernels == (("plain", "") if device == "cpu" else ("fused", ""))
    assert found == {
        "graph_frames": 36,
        "graph_codes_equal": 1.0,
        "graph_rows": 3,
        "graph_rows_with_equal_sound": 3,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("device", DEVICES)
def test_a_device_chooses_as_a_cpu_does(device: str) -> None:
    """In float32 nearly all choices are equal, the others near ties; in bfloat16 most are."""
    found = choices_against_cpu(MODEL, torch.device(device), torch.bfloat16, frames=16)
    assert found["choices"] == 256
    assert found["cpu_agreement"] >= 0.999 or found["differences_are_near_ties"]
    assert 0.8 < found["served_top_1_agreement"] < 1


def test_the_kernels_that_are_served_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If fused kernels can run they are compared, because a server uses them."""
    asked = list[tuple[str, str]]()

    class Source:
        config = tiny_random_model(tmp_path).config

        def checkpoint(self, dtype: Any, device: torch.device, backend: str, **options: Any) -> Any:
            asked.append((device.type, options["kernels"]))
            raise InterruptedError

    monkeypatch.setattr(exactness, "find_fault", lambda *arguments: None)
    gpu: Any = torch.device("cuda")
    for measure in (
        lambda: graphs_against_plain(Source(), gpu, torch.bfloat16, rows=1, frames=1),  # type: ignore[arg-type]
        lambda: choices_against_cpu(Source(), gpu, torch.bfloat16, frames=1),  # type: ignore[arg-type]
    ):
        with pytest.raises(InterruptedError):
            measure()
    assert asked == [("cuda", "fused"), ("cuda", "fused")]
    monkeypatch.setattr(exactness, "find_fault", lambda *arguments: "no Triton")
    served = exactness.served_kernels(Source(), gpu, torch.bfloat16)  # type: ignore[arg-type]
    assert served == ("plain", "no Triton")
