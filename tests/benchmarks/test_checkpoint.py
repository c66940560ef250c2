"""Random checkpoints have the published tensors and sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.checkpoint import (
    META,
    codec_shapes,
    model_shapes,
    ready_checkpoint,
    write_checkpoint,
)
from testbed.published import CODEC, SIZES, Kind, model_config
from voiceagent_tts.model.checkpoint import build_network, load_checkpoint, open_weights
from voiceagent_tts.model.config import read_model_config

REFERENCE = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"


def tiny_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a tiny model or codec."""
    return json.loads((folder / "config.json").read_text())


def write_tiny(folder: Path, seed: int) -> Path:
    """Write a tiny random checkpoint."""
    codec = tiny_config(REFERENCE / "speech_tokenizer")
    write_checkpoint(folder, tiny_config(REFERENCE), codec, seed)
    return folder


def test_a_random_checkpoint_is_complete(tmp_path: Path) -> None:
    """A random checkpoint has exactly the tensors of a published one."""
    folder = write_tiny(tmp_path, 1)
    for part in ("", "speech_tokenizer"):
        shapes = {key: tensor.shape for key, tensor in open_weights(folder / part).items()}
        published = open_weights(REFERENCE / part)
        assert shapes == {key: tensor.shape for key, tensor in published.items()}


def test_a_checkpoint_that_was_broken_off_is_made_again(tmp_path: Path) -> None:
    """An interrupted checkpoint is written again; a complete one is reused."""
    configs = tiny_config(REFERENCE), tiny_config(REFERENCE / "speech_tokenizer")
    partial = tmp_path / "made.partial"
    partial.mkdir()
    (partial / "model.safetensors").write_text("half of it")
    folder = ready_checkpoint(tmp_path / "made", *configs)
    assert not partial.exists()
    weights = folder / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert load_checkpoint(ready_checkpoint(folder, *configs)).config.tts_model_size
    assert weights.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("size", "talker", "kind"),
    [("0.6b", 443.6e6, "custom_voice"), ("1.7b", 1415.7e6, "base")],
)
def test_sizes_are_the_published(tmp_path: Path, size: str, talker: float, kind: Kind) -> None:
    """Full-size configurations have the published numbers of parameters."""
    (tmp_path / "config.json").write_text(json.dumps(model_config(SIZES[size], kind)))
    network = build_network(read_model_config(tmp_path), torch.bfloat16, META, "sdpa")

    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    steps = count(network.talker.transformer) + count(network.talker.head)
    assert steps == pytest.approx(talker, rel=1e-3)
    assert count(network.code_predictor.transformer) == pytest.approx(78.66e6, rel=1e-3)
    assert count(network.code_predictor.heads) == pytest.approx(31.5e6, rel=2e-3)
    has_encoder = any(key.startswith("speaker_encoder.") for key in model_shapes(tmp_path))
    assert has_encoder == (kind == "base")


def test_the_codec_s_size_is_the_published(tmp_path: Path) -> None:
    """The codec's file would be as large as the published one: 682 MB."""
    (tmp_path / "config.json").write_text(json.dumps(CODEC))
    shapes = codec_shapes(tmp_path).values()
    numbers = sum(torch.Size(shape).numel() for shape in shapes)
    assert 4 * numbers == pytest.approx(682e6, rel=2e-3)
