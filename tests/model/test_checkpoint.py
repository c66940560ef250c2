"""Loading a checkpoint: its files become modules, and an incomplete checkpoint is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.model.checkpoint import load_checkpoint, open_weights
from voiceagent_tts.plugins.recordings.clone import load_speaker_encoder

Tensors = dict[str, Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REFERENCE / "base-0b6", tmp_path / "base"))


def rewrite(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_every_tensor_is_used(folder: Path) -> None:
    """The modules use every tensor of a published checkpoint, and need no other."""
    used = [key for key, _ in load_checkpoint(folder, is_packed=False).network.weights()]
    used += [key for key, _ in load_speaker_encoder(folder).weights()]
    assert sorted(used) == sorted(open_weights(folder))


def test_fused_weights_are_the_checkpoint_s(folder: Path) -> None:
    """Every loaded tensor, fused or not, has the values in the file."""
    stored = load_file(folder / "model.safetensors")
    network = load_checkpoint(folder, torch.bfloat16, is_packed=False).network
    for key, tensor in network.weights():
        assert torch.equal(tensor, stored[key]), key


def test_shards_are_read(folder: Path) -> None:
    """Weights split over several files are found through the index file."""
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, keys in shards.items():
        save_file({key: tensors[key] for key in keys}, folder / shard)
    index = {"weight_map": {key: shard for shard, keys in shards.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole.unlink()
    network = load_checkpoint(folder, torch.bfloat16, is_packed=False).network
    loaded = dict(network.weights())
    assert all(torch.equal(loaded[key], tensors[key]) for key in loaded)


def test_a_fine_tuned_checkpoint_loads(folder: Path) -> None:
    def drop_speaker_encoder(tensors: Tensors) -> None:
        for key in [key for key in tensors if key.startswith("speaker_encoder.")]:
            del tensors[key]

    rewrite(folder, drop_speaker_encoder)
    config = json.loads((folder / "config.json").read_text())
    config["tts_model_type"] = "custom_voice"
    config["talker_config"] |= {"spk_id": {"mine": 1000}, "spk_is_dialect": {"mine": False}}
    (folder / "config.json").write_text(json.dumps(config))
    assert load_checkpoint(folder).config.talker_config.spk_id == {"mine": 1000}


def test_a_missing_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop("talker.model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"base: talker\.model\.norm\.weight: is not in"):
        load_checkpoint(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"talker.model.norm.weight": torch.ones(3)}))
    expected = r"model\.safetensors: talker\.model\.norm\.weight: shape is \[3\], expected \[64\]"
    with pytest.raises(CheckpointError, match=expected):
        load_checkpoint(folder)


def test_quantized_weights_are_refused(folder: Path) -> None:
    integers = torch.ones(64, dtype=torch.int8)
    rewrite(folder, lambda tensors: tensors.update({"talker.model.norm.weight": integers}))
    with pytest.raises(CheckpointError, match=r"talker\.model\.norm\.weight: type is I8"):
        load_checkpoint(folder)


@pytest.mark.parametrize("kept", [0, 4, 1000, 300_000])
def test_a_cut_download_is_refused(folder: Path, kept: int) -> None:
    """A truncated file is refused by name, wherever it was truncated."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_checkpoint(folder)


_MEASURE = """
import math, sys
from pathlib import Path
import torch
from voiceagent_tts.model.checkpoint import load_checkpoint, open_weights
from voiceagent_tts.plugins.recordings.clone import load_speaker_encoder

def resident(line):
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(entry.split()[1]) for entry in status if entry.startswith(line))

folder, dtype = Path(sys.argv[1]), getattr(torch, sys.argv[2])
after_imports = resident("VmRSS:")
checkpoint = load_checkpoint(folder, dtype)
tensors = open_weights(folder).values()
wanted = sum(math.prod(tensor.shape) for tensor in tensors) * dtype.itemsize
print((resident("VmHWM:") - after_imports) / wanted)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.thorough), "bfloat16"])
def test_loading_needs_no_second_copy(folder: Path, dtype: str) -> None:
    """Peak memory while loading is at most 1.15 times the size of the loaded tensors."""
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"] |= {"text_vocab_size": 200_000, "text_hidden_size": 1024}
    (folder / "config.json").write_text(json.dumps(config))
    wide = {
        "talker.model.text_embedding.weight": (200_000, 1024),
        "talker.text_projection.linear_fc1.weight": (1024, 1024),
        "talker.text_projection.linear_fc1.bias": (1024,),
        "talker.text_projection.linear_fc2.weight": (64, 1024),
    }
    zeros = {key: torch.zeros(shape, dtype=torch.bfloat16) for key, shape in wide.items()}
    rewrite(folder, lambda tensors: tensors.update(zeros))
    command = [sys.executable, "-c", _MEASURE, str(folder), dtype]
    ratio = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(ratio) <= 1.15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weights_are_converted(folder: Path, dtype: torch.dtype) -> None:
    """bfloat16 files load in other precisions; a float16 talker gets a float32 code predictor."""
    network = load_checkpoint(folder, dtype, is_packed=False).network
    stored = load_file(folder / "model.safetensors")
    key = "talker.codec_head.weight"
    assert torch.equal(dict(network.weights())[key], stored[key].to(dtype))
    assert {tensor.dtype for _, tensor in network.talker.weights()} == {dtype}
    assert {tensor.dtype for _, tensor in network.code_predictor.weights()} == {torch.float32}


def test_a_missing_shard_is_named(folder: Path) -> None:
    """An index that lists a missing file is refused; the error names the file."""
    index = {"weight_map": {"talker.codec_head.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="model-00002-of-00002.safetensors"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "generation_config.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    """A partial checkpoint is refused; the error names the missing file."""
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(folder)
