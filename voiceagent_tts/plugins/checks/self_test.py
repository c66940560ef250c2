"""Test a device: CUDA graphs, step times, and the number of rows that fit.

Runs an engine's rows with the weights of a checkpoint, or random weights of the published size.
Only a few sizes are captured to save time; a server captures more sizes and runs equally fast. This
module does not know the server or its settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import FRAMES_A_CALL, WINDOWS_FRAMES, Shapes, Sizes
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.config import (
    CodecConfig,
    CodecDecoderConfig,
    GenerationConfig,
    ModelConfig,
    read_model_config,
)
from voiceagent_tts.model.kernels import find_fault
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, pages_for
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.plugins.checks.random_weights import (
    PUBLISHED,
    PUBLISHED_CODEC,
    untrained_decoder,
    untrained_network,
)
from voiceagent_tts.plugins.checks.step_times import StepTime, time_steps

ROWS = (1, 32, 256)
CONTEXT_S = 60.0
"""Seconds of speech per row, including the prompt, for the estimate of memory."""

_POSITIONS, _CAPACITY = 180, PAGE_POSITIONS
_STEPS = 24
_MEMORY_SHARE = 0.5
"""Maximum share of the memory free beside the weights that the test's rows use."""
_TINY_ROWS, _TINY_FRAMES = 2, 8


@dataclass(frozen=True, slots=True)
class Model:
    """The parts of a checkpoint that a runner needs, and a codec. There is no tokenizer."""

    network: Network
    generation: GenerationConfig
    codec: Codec

    def runner(self, rows: Sequence[int], *, has_graphs: bool) -> Runner:
        """Build a runner for these numbers of rows, and capture its graphs."""
        most = rows[-1]
        runner = Runner(
            cast("Checkpoint", self),
            self.codec,
            most,
            _CAPACITY,
            sizes=_few_sizes(rows),
            has_graphs=has_graphs,
        )
        runner.graphs.capture(lambda done, total: None)
        return runner


def published_model(device: torch.device, dtype: torch.dtype) -> Model:
    """Build a model of the published size with random weights."""
    kernels = _kernels(PUBLISHED, dtype, device)
    return _untrained(PUBLISHED, PUBLISHED_CODEC, device, dtype, kernels)


def stored_model(folder: Path, device: torch.device, dtype: torch.dtype) -> Model:
    """Load a checkpoint.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
    """
    kernels = _kernels(read_model_config(folder), dtype, device)
    checkpoint = load_checkpoint(folder, dtype, device, kernels=kernels)
    return Model(checkpoint.network, checkpoint.generation, load_codec(folder, device=device))


def tiny_model(device: torch.device) -> Model:
    """Build a model with a few narrow layers, in float32."""
    talker = PUBLISHED.talker_config
    narrow = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16}
    predictor = replace(talker.code_predictor_config, **narrow)
    talker = replace(
        talker, **narrow, text_vocab_size=8, text_hidden_size=64, code_predictor_config=predictor
    )
    codec = replace(PUBLISHED_CODEC, decoder_dim=96, latent_dim=64, num_hidden_layers=2)
    config = replace(
        PUBLISHED, talker_config=talker, tts_pad_token_id=1, tts_bos_token_id=2, tts_eos_token_id=3
    )
    return _untrained(config, codec, device, torch.float32)


def _kernels(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Kernels:
    """Return the kernels that a server would use."""
    return "plain" if find_fault(config.talker_config, dtype, device) else "fused"


def _untrained(
    config: ModelConfig,
    codec: CodecDecoderConfig,
    device: torch.device,
    dtype: torch.dtype,
    kernels: Kernels = "plain",
) -> Model:
    network = untrained_network(config, dtype, device, kernels)
    codec_config = CodecConfig(
        model_type="qwen3_tts_tokenizer_12hz", decoder_config=codec, encoder_config={}
    )
    decoder = untrained_decoder(codec, device)
    return Model(network, GenerationConfig(), Codec(codec_config, decoder, None))


def _few_sizes(rows: Sequence[int]) -> Sizes:
    codec = {frames: (max(1, FRAMES_A_CALL // frames),) for frames in WINDOWS_FRAMES}
    return Sizes(Shapes(rows, (_CAPACITY,), (_CAPACITY,)), codec)


def _prompt(positions: int) -> Prompt:
    return Prompt((0,) * positions, (NO_CODEC,) * positions)


def graphs_agree(model: Model) -> bool:
    """Whether captured passes produce the samples of eager passes."""
    graphed, plain = (
        _sound_of(model.runner((_TINY_ROWS,), has_graphs=has_graphs), model)
        for has_graphs in (True, False)
    )
    return graphed == plain


def _sound_of(runner: Runner, model: Model) -> list[bytes]:
    rows = range(_TINY_ROWS)
    for row in rows:
        sampling = sampling_params(model.generation, seed=row)
        prompt = replace(_prompt(4), trailing_text_ids=(0,) * (_TINY_FRAMES + 1))
        runner.start(row, prompt, sampling, _TINY_FRAMES, is_open=True)
    sound = [b""] * _TINY_ROWS
    for number in range(_TINY_FRAMES):
        result = runner.step(rows, dict.fromkeys(rows, 4) if number % 4 == 3 else {})
        for part in result.sounds:
            sound[part.row] += part.pcm
    while runner.has_sound_in_flight:
        for part in runner.step([], {}).sounds:
            sound[part.row] += part.pcm
    return sound


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed and memory of a model on a device.

    Attributes:
        times: step times for ascending numbers of rows.
        page_bytes: memory of one KV page.
        row_bytes: memory of one row without its pages.
        free_bytes: memory free for rows after loading.
    """

    times: tuple[StepTime, ...]
    page_bytes: int
    row_bytes: int
    free_bytes: int

    @property
    def rows_in_memory(self) -> int:
        """Number of rows of `CONTEXT_S` each that fit into memory."""
        return rows_in_memory(self.free_bytes, self.page_bytes, self.row_bytes, CONTEXT_S)


def rows_in_memory(free_bytes: int, page_bytes: int, row_bytes: int, context_s: float) -> int:
    """Return how many rows of `context_s` seconds fit into `free_bytes`."""
    pages = pages_for(_POSITIONS + round(context_s / FRAME_S))
    return free_bytes // (pages * page_bytes + row_bytes)


def rows_worth_timing(free_bytes: int, page_bytes: int) -> tuple[int, ...]:
    """Return the entries of `ROWS` that fit into memory; one row always does."""
    most = _MEMORY_SHARE * free_bytes / page_bytes
    return tuple(rows for rows in ROWS if rows == ROWS[0] or rows <= most)


def measure_speed(model: Model, free_bytes: int) -> Speed:
    """Measure step times for a few numbers of rows."""
    config = model.network.config.talker_config
    heads = config.num_key_value_heads * config.head_dim
    element = model.network.talker.codec_embedding.element_size()
    page_bytes = 2 * config.num_hidden_layers * PAGE_POSITIONS * heads * element
    rows = rows_worth_timing(free_bytes, page_bytes)
    runner = model.runner(rows, has_graphs=True)
    sampling = sampling_params(model.generation, seed=0)
    times = tuple(
        time_steps(runner, _prompt(_POSITIONS), sampling, count, _STEPS) for count in rows
    )
    return Speed(times, page_bytes, runner.codec_row_bytes, free_bytes)
