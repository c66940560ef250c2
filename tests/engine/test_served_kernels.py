"""The kernels that a server runs are compiled, and those of the talker checked, at its start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from testbed.engine_driving import Driver
from testbed.parity_reference import REFERENCE
from testbed.random_weights import PUBLISHED
from testbed.runner_driving import state_after
from testbed.triton_here import Run, separate_process, variants
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.engine.cuda_graph import plainly
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.row_table import record_type
from voiceagent_tts.engine.sizes import fixed_sizes, graph_sizes
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.model.checkpoint import build_network, load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.kernels import differences
from voiceagent_tts.model.kv_pool import empty_pool, pages_for
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.seam.commands import Prepare
from voiceagent_tts.seam.events import Failed

CPU = torch.device("cpu")
ROWS, CAPACITY = 64, 1024
SAMPLED = SamplingParams(SamplingSettings(), SamplingSettings())


@pytest.fixture(scope="module")
def run_apart() -> Iterator[Run]:
    with separate_process() as run:
        yield run


def shallow(hidden_size: int) -> ModelConfig:
    talker = PUBLISHED.talker_config
    predictor = replace(talker.code_predictor_config, num_hidden_layers=1)
    talker = replace(
        talker, num_hidden_layers=1, text_vocab_size=64, hidden_size=hidden_size,
        intermediate_size=3 * hidden_size, code_predictor_config=predictor,
    )  # fmt: skip
    return replace(PUBLISHED, talker_config=talker)


@contextmanager
def zeros() -> Iterator[None]:
    """What no kernel has written is zero, so that it is a valid code."""
    with (
        patch.object(torch, "empty", torch.zeros),
        patch.object(torch, "empty_like", torch.zeros_like),
        patch.object(Tensor, "new_empty", Tensor.new_zeros),
    ):
        yield


def _check(config: ModelConfig) -> None:
    list(differences(config.talker_config, torch.bfloat16, CPU))


def _serve(config: ModelConfig) -> None:
    """Run every pass once, with the results of products and samplers that are zeros."""

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return x.new_zeros(*x.shape[:-1], len(weight))

    network = build_network(config, torch.bfloat16, CPU, "sdpa", "fused")
    network.code_predictor.fold(network.talker.codec_embedding)
    shapes = graph_sizes(ROWS, CAPACITY, has_windows=False).talker
    pool = empty_pool(config.talker_config, ROWS, network.talker.codec_embedding)
    layout = record_type(network.codebooks, pages_for(shapes.positions))
    rows = empty_rows(network, ROWS, CAPACITY, pool)
    samplers = make_samplers([SAMPLED], "fused")
    passes = Passes(network, rows, layout, shapes, *samplers, compile=plainly)
    passes.send(np.ones(ROWS, layout))
    with torch.inference_mode(), patch.object(F, "linear", product), zeros():
        for key in passes.keys():
            passes.calls[key]()


@pytest.mark.parametrize("hidden_size", [2048, pytest.param(1024, marks=pytest.mark.thorough)])
def test_what_is_served_was_checked(run_apart: Run, hidden_size: int) -> None:
    """Every binary that any pass launches is among those that the check at the start runs."""
    config = shallow(hidden_size)
    checked, served = run_apart(variants, _check, config), run_apart(variants, _serve, config)
    assert served
    assert {name for name, _ in served - checked} == set()


BASE = "base-0b6"
CLONES = {"embedding": None, "whole": 12, "long": 150}
"""Frames of the references of clones; the longest one makes a prompt of several passes."""


@cache
def _started(voices: str, *, is_deterministic: bool) -> Driver:
    """Load an engine with fused kernels, as on a GPU whose passes are not captured."""
    checkpoint = load_checkpoint(REFERENCE / BASE, kernels="fused", is_packed=False)
    generation = replace(checkpoint.generation, max_new_tokens=4)
    codec = load_codec(REFERENCE / BASE, is_packed=False)
    codec.decoder.fuse()
    sizes = graph_sizes(3, CAPACITY, has_windows=False)
    if is_deterministic:
        sizes = fixed_sizes(3, CAPACITY)
    parts = replace(checkpoint, generation=generation), codec
    with zeros():
        driver = Driver(BASE, rows=3, voices=Path(voices), parts=parts, sizes=sizes)
        driver.runner.capture(lambda done, total: None)
    return driver


def _speak(voices: str, *, is_deterministic: bool) -> None:
    """Speak alone and together, prepared and not, to listeners and into a file; each twice."""
    driver = _started(voices, is_deterministic=is_deterministic)
    with zeros():
        driver.run(Prepare("whole", "en"))
        for number, voice in enumerate(["whole", *CLONES]):
            said = driver.open(number, "Some words.", voice=voice, is_batch=number == 3)
            driver.send(*said) if number else driver.run(*said)
        driver.run()
        for frames in range(1, 25):  # every length of a reference's last part
            state_after(driver.runner.prime(torch.zeros(frames, 16, dtype=torch.int64)))
    ends = [event.code for event in driver.events if isinstance(event, Failed)]
    assert ends == [ErrorCode.TEXT_LOST] * 4, driver.events  # numbers without values are silence


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_no_kernel_is_compiled_after_the_start(
    run_apart: Run, is_deterministic: bool, tmp_path: Path
) -> None:
    """Whatever is spoken by whom, with which reference, launches what was compiled at the start."""
    folder = VoiceFolder(tmp_path)
    for name, frames in CLONES.items():
        codes = None if frames is None else torch.zeros(frames, 16, dtype=torch.int64)
        write_file(folder.file(name), Cloned(torch.zeros(64), codes, "quick brown fox").to_bytes())
    started, spoken = (
        run_apart(variants, partial(function, str(tmp_path), is_deterministic=is_deterministic))
        for function in (_started, _speak)
    )
    assert spoken
    assert {name for name, _ in spoken - started} == set()
