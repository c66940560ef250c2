"""How fast are the matrix products of a frame, for each shape of the network and number of rows?

As in a frame, every product reads weights that no cache holds: each runs over copies of its matrix
that together are larger than a GPU's cache, as one graph where graphs can be captured.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import linear

from benchmarks.engine.loading import GraphFault
from voiceagent_tts.engine.cuda_graph import Stream
from voiceagent_tts.model.config import TalkerConfig, TransformerConfig

ROWS = (1, 16, 64, 256)
_GPU_COPIES_BYTES, _CPU_COPIES_BYTES = 256 * 2**20, 2**20
_MOST_COPIES = 64
_ROUNDS = 5


def matrix_shapes(config: TalkerConfig) -> Iterator[tuple[str, int, int]]:
    """Yield (name, outputs, inputs) of the matrices that a frame's products read."""
    predictor = config.code_predictor_config
    for name, part in (("talker", config), ("predictor", predictor)):
        yield from _layer_shapes(name, part)
        yield f"{name} head", part.vocab_size, part.hidden_size
    if predictor.hidden_size != config.hidden_size:
        yield "predictor projection", predictor.hidden_size, config.hidden_size


def _layer_shapes(name: str, config: TransformerConfig) -> Iterator[tuple[str, int, int]]:
    queries = config.num_attention_heads * config.head_dim
    heads = config.num_attention_heads + 2 * config.num_key_value_heads
    yield f"{name} qkv", heads * config.head_dim, config.hidden_size
    yield f"{name} attention output", config.hidden_size, queries
    yield f"{name} gate and up", 2 * config.intermediate_size, config.hidden_size
    yield f"{name} down", config.hidden_size, config.intermediate_size


@torch.inference_mode()
def time_product(
    rows: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    has_graphs: bool,
) -> dict[str, Any]:
    """Time [rows, inputs] x [inputs, outputs].

    Raises:
        GraphFault: the products cannot be captured; try again in a new process, without graphs.
    """
    size = dtype.itemsize
    wanted = _GPU_COPIES_BYTES if device.type == "cuda" else _CPU_COPIES_BYTES
    copies = min(_MOST_COPIES, -(-wanted // (outputs * inputs * size)))
    weights = torch.randn(copies, outputs, inputs, dtype=dtype, device=device)
    x = torch.randn(rows, inputs, dtype=dtype, device=device)

    def multiply() -> None:
        for weight in weights:
            linear(x, weight)

    stream = Stream(device, is_captured=has_graphs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # the weights were made on another stream
    with stream.entered():
        try:
            replay = stream.compile(multiply)
            replay()
        except Exception as error:
            if has_graphs:
                raise GraphFault(str(error)) from error
            raise
        began = stream.mark()
        for _ in range(_ROUNDS):
            replay()
        ended = stream.mark()
    ended.wait()
    seconds = ended.seconds_since(began) / _ROUNDS / copies
    moved = size * (outputs * inputs + rows * (inputs + outputs))
    return {
        "ms": round(seconds * 1000, 5),
        "gb_per_s": round(moved / seconds / 1e9, 3),
        "tflop_per_s": round(2 * rows * outputs * inputs / seconds / 1e12, 3),
        "has_graphs": stream.is_captured,
    }
