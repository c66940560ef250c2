"""How many operations does a GPU launch for a frame, with plain and with fused kernels?

The passes of a frame, in the structure of a published model, run on tensors that have shapes and no
values. Every operation that PyTorch would launch on a GPU is counted; views are not, and a Triton
kernel counts as one. Some of PyTorch's operations are several launches (a matrix product with few
rows, a sort), so the counts are lower bounds. Runs anywhere; fused kernels need Triton, but no GPU.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast
from unittest.mock import patch

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.common.report import provenance, publish
from benchmarks.engine.frame_passes import frame_passes
from voiceagent_tts.checks.random_weights import PUBLISHED
from voiceagent_tts.engine.cuda_graph import plainly
from voiceagent_tts.model.checkpoint import build_network
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.layers import Kernels

_META = torch.device("meta")
_ROWS, _CAPACITY = 4, 1024
_NOTHING = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "detach")
"""Operations that launch nothing, in addition to views."""


class _Wholes(TorchFunctionMode):
    """Counts functions that are one operation on a GPU but several on tensors without values."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (F.rms_norm, F.scaled_dot_product_attention):
            self._counts[func.__name__] += 1
            return torch.empty_like(args[0])
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Counts all other operations."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _NOTHING:
            self._counts[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counting(kernels: Kernels) -> Iterator[Counter[str]]:
    """Count operations by name within the block."""
    counts = Counter[str]()
    with _Wholes(counts), _Operations(counts):
        if kernels == "plain":
            yield counts
            return
        from triton import JITFunction

        def note(kernel: Any, *args: Any, **options: Any) -> None:
            counts[kernel.__name__] += 1

        with patch.object(JITFunction, "run", note):
            yield counts


@torch.inference_mode()
def count(config: ModelConfig, kernels: Kernels) -> dict[str, Counter[str]]:
    """Return the operations of a frame by name, for each of its passes: `predict` and `advance`."""
    network = build_network(config, torch.bfloat16, _META, "sdpa", kernels)
    network.code_predictor.fold(network.talker.codec_embedding)
    passes = frame_passes(network, _ROWS, _CAPACITY, plainly)
    counted: dict[str, Counter[str]] = {}
    for name, run in (
        ("predict", passes.predict),
        ("advance", passes.advance),
    ):
        with counting(kernels) as counted[name]:
            run()
    return counted


def main(
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Count the operations of a frame."""
    table = Table("kernels", "code predictor", "talker", "a frame")
    figures: dict[str, dict[str, int]] = {}
    for kernels in ("plain", "fused"):
        counted = count(PUBLISHED, cast("Kernels", kernels))
        totals = {name: counts.total() for name, counts in counted.items()}
        figures[kernels] = totals | {"frame": sum(totals.values())}
        table.add_row(kernels, *map(str, figures[kernels].values()))
    Console().print(table)
    publish({**figures, **provenance()}, json)


if __name__ == "__main__":
    typer.run(main)
