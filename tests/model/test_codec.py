"""Loading a codec from a model's folder or from its own; an unsuitable one is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import CheckpointError, ErrorCode
from voiceagent_tts.model.checkpoint import open_weights
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.plugins.recordings.codec_encoder import load_codec_encoder

ENCODER_ONLY_BY_NAME = {
    "decoder.quantizer.rvq_first.input_proj.weight",
    "decoder.quantizer.rvq_rest.input_proj.weight",
}
"""Tensors of the decoder that only the encoder uses."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REFERENCE / "base-0b6" / "speech_tokenizer", tmp_path / "codec"))


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture(scope="module")
def codes() -> Tensor:
    with np.load(REFERENCE / "codec-130-frames.npz") as arrays:
        return torch.from_numpy(arrays["codes"][:30]).long()


def test_recordings_are_decoded_with_progress(codes: Tensor) -> None:
    reported: list[tuple[int, int]] = []
    samples = load_codec(REFERENCE / "base-0b6").decode(codes, lambda *done: reported.append(done))
    assert samples.shape == (30 * FRAME_SAMPLES,)
    assert reported == [(12, 30), (24, 30), (30, 30)]
    with np.load(REFERENCE / "codec-130-frames.npz") as arrays:
        expected = torch.from_numpy(arrays["wav"][: len(samples)])
    assert (samples - expected).abs().max() < 1e-4


def test_every_tensor_is_used(folder: Path) -> None:
    """The modules use every tensor of a published codec, except those listed here with a reason."""
    parts = load_codec(folder, is_packed=False).decoder, load_codec_encoder(folder)
    used = {key for part in parts for key, _ in part.weights()}
    assert set(open_weights(folder)) - used == ENCODER_ONLY_BY_NAME
    assert used <= set(open_weights(folder))


def test_the_25_hz_codec_is_refused(folder: Path) -> None:
    change_config(folder, lambda config: config.update(model_type="qwen3_tts_tokenizer_25hz"))
    expected = r"config\.json: model_type: .*12hz.*, got 'qwen3_tts_tokenizer_25hz'"
    with pytest.raises(CheckpointError, match=expected) as caught:
        load_codec(folder)
    assert caught.value.code == ErrorCode.INVALID_CHECKPOINT


@pytest.mark.parametrize(
    "key", ["decoder.decoder.4.block.4.act2.beta", "encoder.downsample.conv.weight"]
)
def test_a_missing_tensor_is_named(folder: Path, key: str) -> None:
    change_weights(folder, lambda tensors: tensors.pop(key))
    load = load_codec_encoder if key.startswith("encoder.") else load_codec
    with pytest.raises(CheckpointError, match=f"{key}: is not in"):
        load(folder)
