"""The kernels that a server runs are those that its check has compared at the start."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from testbed.random_weights import PUBLISHED
from testbed.triton_here import separate_process, variants
from voiceagent_tts.engine.cuda_graph import plainly
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.row_table import record_type
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.model.checkpoint import build_network
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.kernels import differences
from voiceagent_tts.model.kv_pool import empty_pool, pages_for
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings

CPU = torch.device("cpu")
ROWS, CAPACITY = 64, 1024
SAMPLED = SamplingParams(SamplingSettings(), SamplingSettings())


def shallow(hidden_size: int) -> ModelConfig:
    """A published model of this width, with one layer and few words."""
    talker = PUBLISHED.talker_config
    predictor = replace(talker.code_predictor_config, num_hidden_layers=1)
    talker = replace(
        talker, num_hidden_layers=1, text_vocab_size=64, hidden_size=hidden_size,
        intermediate_size=3 * hidden_size, code_predictor_config=predictor,
    )  # fmt: skip
    return replace(PUBLISHED, talker_config=talker)


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
    zeros = patch.object(torch, "empty", torch.zeros)
    with torch.inference_mode(), patch.object(F, "linear", product), zeros:
        for key in passes.keys():
            passes.calls[key]()


@pytest.mark.parametrize("hidden_size", [2048, pytest.param(1024, marks=pytest.mark.thorough)])
def test_what_is_served_was_checked(hidden_size: int) -> None:
    """Every binary that any pass launches is among those that the check at the start runs."""
    config = shallow(hidden_size)
    with separate_process() as run:
        checked, served = run(variants, _check, config), run(variants, _serve, config)
    assert served
    assert {name for name, _ in served - checked} == set()
