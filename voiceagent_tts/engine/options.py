"""What an engine is asked to load, and where."""

from dataclasses import dataclass
from typing import Literal

from voiceagent_tts.model.attention import AttentionBackend

Precision = Literal["float32", "bfloat16", "float16", "int8", "auto"]
KernelChoice = Literal["auto", "plain", "fused"]


@dataclass(frozen=True, slots=True)
class Qwen3Options:
    """Settings of an engine: the model, the device, and their limits.

    Attributes:
        model: folder of a model, or the id of a downloaded model.
        device: `cpu`, `cuda` or `cuda:N`. Default: a GPU if there is one.
        precision: data type of talker and code predictor. Default: bfloat16 on a GPU, float16 on a
            GPU without bfloat16, float32 on a CPU. On a CPU also `int8`, for the weights of layers,
            and `auto`, which is `int8` where the CPU has kernels for it; on a GPU `auto` is the
            default.
        rows: maximum number of contexts at a time. Default: 8 on a CPU; on a GPU, the number of
            rows that have memory for a minute each, at most 64.
        capacity: positions of a row: its prompt and its frames, 12.5 per second.
        gpu_memory_gb: maximum GPU memory of the process, in 10^9 bytes. Default: 90 % of the free
            memory.
        sharing: number of workers that share the GPU; without `gpu_memory_gb` each takes an equal
            part.
        attention: attention of plain kernels, `sdpa` or `flash`. Default: flash-attn if it is
            installed and supported.
        codec_kernels: kernels of the codec; `auto` uses fused ones on a GPU if they work.
        has_graphs: whether passes are captured as CUDA graphs on a GPU.
        is_deterministic: whether every call has one size, so that a seed gives identical bits
            whatever else runs.
        voices: folder of cloned voices, for Base models.
        threads: number of CPU threads. Default: PyTorch's choice. Workers on one machine should
            divide its cores among them, because threads that wait for each other slow all workers
            down.
    """

    model: str
    device: str | None = None
    precision: Precision | None = None
    rows: int | None = None
    capacity: int = 4096
    gpu_memory_gb: float | None = None
    sharing: int = 1
    attention: AttentionBackend | None = None
    kernels: KernelChoice = "auto"
    codec_kernels: KernelChoice = "auto"
    has_graphs: bool = True
    is_deterministic: bool = False
    voices: str | None = None
    threads: int | None = None
