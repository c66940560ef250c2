"""Write full-size checkpoints with random weights, in the layout of the published ones.

They load wherever a published model loads, also in the official package. The cost of a step does
not depend on the values of the weights, so timings are representative; the audio is noise. The
end-of-speech code is as unlikely as the median code, so speech usually reaches its frame limit.

Nothing is downloaded.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.progress import Progress
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.random_models.in_memory import random_tensor
from benchmarks.random_models.vocabulary import write_tokenizer
from testbed.published import (
    CODEC,
    CODEC_PREPROCESSOR,
    GENERATION,
    PREPROCESSOR,
    SIZES,
    Kind,
    model_config,
)
from voiceagent_tts.model.checkpoint import build_network, building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CODEC_FOLDER, read_codec_config, read_model_config
from voiceagent_tts.model.layers import Weights
from voiceagent_tts.plugins.recordings.codec_encoder import CodecEncoder
from voiceagent_tts.plugins.recordings.speaker_encoder import SpeakerEncoder

META = torch.device("meta")


def write_checkpoint(
    folder: Path,
    model: dict[str, Any],
    codec: dict[str, Any],
    seed: int,
    progress: Progress | None = None,
    device: str = "cpu",
) -> None:
    """Write a checkpoint with random weights.

    Args:
        folder: folder to create.
        model: config.json of the model.
        codec: config.json of its codec.
        seed: equal seeds give equal files on one kind of device.
        progress: shows the number of generated tensors.
        device: device that draws the numbers; a GPU takes seconds, a CPU minutes.
    """
    codec_folder = folder / CODEC_FOLDER
    codec_folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", model)
    _write_json(folder / "generation_config.json", GENERATION)
    _write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    write_tokenizer(folder, read_model_config(folder))
    _write_json(codec_folder / "config.json", codec)
    _write_json(codec_folder / "preprocessor_config.json", CODEC_PREPROCESSOR)
    generator = torch.Generator(device).manual_seed(seed)
    tensors = _random_tensors(model_shapes(folder), torch.bfloat16, generator, progress)
    tensors["talker.codec_head.weight"][model["talker_config"]["codec_eos_token_id"]] = 0
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    del tensors
    tensors = _random_tensors(codec_shapes(codec_folder), torch.float32, generator, progress)
    save_file(tensors, codec_folder / "model.safetensors", {"format": "pt"})


def ready_checkpoint(
    folder: Path,
    model: dict[str, Any],
    codec: dict[str, Any],
    progress: Progress | None = None,
    device: str = "cpu",
) -> Path:
    """Return `folder`, after writing a random checkpoint of these sizes if it does not exist.

    The folder appears only when complete, so an interrupted run starts again.
    """
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        write_checkpoint(partial, model, codec, 0, progress, device)
        partial.rename(folder)
    return folder


def model_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a model's tensors, from its config.json."""
    config = read_model_config(folder)
    network = build_network(config, torch.float32, META, "sdpa")
    shapes = dict(_shapes(network.weights()))
    if config.has_speaker_encoder:
        with building(torch.float32, META):
            encoder = SpeakerEncoder(config.speaker_encoder_config)
        shapes |= _shapes(encoder.weights())
    return shapes


def codec_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a codec's tensors, from its config.json."""
    config = read_codec_config(folder)
    with building(torch.float32, META):
        decoder = CodecDecoder(config.decoder_config)
        encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
        shapes = dict((*_shapes(decoder.weights()), *_shapes(encoder.weights())))
    width = config.decoder_config.codebook_dim
    for quantizer in ("rvq_first", "rvq_rest"):  # stored, though only encoding would need them
        shapes[f"decoder.quantizer.{quantizer}.input_proj.weight"] = (width // 2, width, 1)
    return shapes


def _shapes(weights: Weights) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key, tensor in weights:
        yield key, tuple(tensor.shape)


def _random_tensors(
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    generator: torch.Generator,
    progress: Progress | None,
) -> dict[str, Tensor]:
    keys = list(shapes)
    shown = keys if progress is None else progress.track(keys, description=f"{dtype} tensors")
    return {key: random_tensor(key, shapes[key], dtype, generator).cpu() for key in shown}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")


def main(
    out: Annotated[Path, typer.Option(help="folder to write")],
    size: Annotated[Literal["0.6b", "1.7b"], typer.Option()] = "0.6b",
    kind: Annotated[Kind, typer.Option()] = "custom_voice",
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="that makes the numbers")] = "cpu",
) -> None:
    """Write a full-size checkpoint with random weights."""
    with Progress() as progress:
        write_checkpoint(out, model_config(SIZES[size], kind), CODEC, seed, progress, device)
    size_gb = sum(file.stat().st_size for file in out.rglob("*") if file.is_file()) / 1e9
    print(json.dumps({"out": str(out), "size": size, "kind": kind, "gb": round(size_gb, 2)}))


if __name__ == "__main__":
    typer.run(main)
