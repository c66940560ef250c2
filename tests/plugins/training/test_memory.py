"""The computed need of memory, against parameters that are counted and the table in the docs."""

from dataclasses import replace

import pytest
import torch

from testbed.papers import table_rows
from testbed.parity_reference import REFERENCE
from testbed.published import SIZES, model_config
from testbed.random_model import config_of
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.plugins.training.memory import memory_need, memory_needs
from voiceagent_tts.plugins.training.options import TrainOptions
from voiceagent_tts.plugins.training.run_folder import trained
from voiceagent_tts.plugins.training.train import build_network, make_optimizer

BASE = REFERENCE / "base-0b6"
OPTIONS = TrainOptions(lora_rank=32)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_weights_gradients_and_averages_are_counted(precision: str, rank: int) -> None:
    """Bytes of weights, gradients and AdamW's averages are those of a real network."""
    options = replace(OPTIONS, precision=precision, lora_rank=rank)  # type: ignore[arg-type]
    network = build_network(BASE, options, torch.device("cpu"))
    optimizer = make_optimizer(network, options)
    for _, parameter in trained(network):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    averages = [t for state in optimizer.state.values() for t in state.values() if t.ndim]
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    need = memory_need(read_model_config(BASE), options, clip_s=1.0)
    assert need.weights_gb * 1e9 == pytest.approx(size(network.parameters()))
    assert need.training_gb * 1e9 == pytest.approx(size([*gradients, *averages]))


def test_recomputation_and_smaller_batches_need_less() -> None:
    """Only activations depend on the batch and on recomputation."""
    config = config_of(ModelConfig, model_config(SIZES["1.7b"], "base"))
    base, kept, large = (
        memory_need(config, options, clip_s=20.0)
        for options in (OPTIONS, replace(OPTIONS, recompute=False), replace(OPTIONS, batch_clips=8))
    )
    assert base.activations_gb < kept.activations_gb
    assert large.activations_gb == pytest.approx(4 * base.activations_gb)
    assert base.weights_gb == kept.weights_gb == large.weights_gb
    assert base.card_gb is not None and base.card_gb <= 24


def test_the_table_of_the_page_is_the_computed_one() -> None:
    """Each cell of docs/finetuning.md is what `--plan` computes for clips of 20 s."""
    columns = (OPTIONS, replace(OPTIONS, batch_clips=8), replace(OPTIONS, recompute=False))
    expected = []
    for name, published in SIZES.items():
        config = config_of(ModelConfig, model_config(published, "base"))
        for needs in zip(*(memory_needs(config, each, 20.0) for each in columns), strict=True):
            cells = [f"{need.total_gb:.1f} ({need.card_gb} GB)" for need in needs]
            expected.append([name.upper(), *cells])
    rows = table_rows("docs/finetuning.md", "model")
    assert [[row[0], *row[2:]] for row in rows] == expected


def size(tensors) -> int:  # type: ignore[no-untyped-def]
    """Return the bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
