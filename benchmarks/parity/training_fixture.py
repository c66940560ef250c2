"""Writes tests/reference/training: what the official training code computes on a tiny checkpoint.

The official scripts are read from a clone of QwenLM/Qwen3-TTS at the commit `OFFICIAL_COMMIT` and
run in an environment with the packages that the official authors name; see `official_training`.

    python -m benchmarks.parity.training_fixture --repository ~/Qwen3-TTS/.git
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from safetensors.torch import load_file, save_file

from benchmarks.engine.peer_packages import OFFICIAL_TRAINING, ahead_of_others, package_folder
from testbed.checkpoint import write_checkpoint
from testbed.published import PREDICTOR, Size, model_config
from testbed.tiny import TINY_CODEC, tiny_model
from voiceagent_tts.model.config import CODEC_FOLDER

OFFICIAL_COMMIT = "022e286b98fbec7e1e916cb940cdf532cd9f488e"
SCRIPTS = ("dataset.py", "sft_12hz.py")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "reference" / "training"
REFERENCE_AUDIO = ROOT / "tests" / "reference" / "reference.wav"

_WEIGHT_SCALE = 10.0
"""With random weights as small as usual, every layer is nearly linear and every gradient tiny."""
_CLIPS = 80
"""Ten steps of four batches of two clips."""
_WORDS = "Hello there, how are you today? Grüße! 你好 We are open on Monday and Friday.".split()
_NARROW = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
           "head_dim": 8, "layer_types": ["full_attention"] * 2}  # fmt: skip


def training_model() -> dict[str, Any]:
    """Return config.json of a Base model with two layers of width 16.

    The talker has the published ids, because the official code writes the speaker to row 3000. It
    adds text embeddings without their projection, so both widths are equal, as in the 1.7B model.
    """
    config = model_config(Size("1b7", hidden_size=16, intermediate_size=24), "base")
    tiny = tiny_model()
    config["talker_config"] |= _NARROW | {
        "text_hidden_size": 16,
        "text_vocab_size": tiny["talker_config"]["text_vocab_size"],
        "code_predictor_config": PREDICTOR
        | _NARROW
        | {"hidden_size": 8, "intermediate_size": 16, "vocab_size": 64},
    }
    config["speaker_encoder_config"] |= {
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_se_channels": 8,
    }
    return config | {key: value for key, value in tiny.items() if key.endswith("_token_id")}


def main(
    repository: Annotated[Path, typer.Option(help="git directory of QwenLM/Qwen3-TTS")],
    packages: Annotated[Path, typer.Option(help="folder for the official packages")] = Path(
        "out/peers"
    ),
) -> None:
    """Run the official training code, and write what it computed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        model, data, out = work / "base", work / "clips.jsonl", work / "out"
        _write_model(model)
        clips = _write_clips(data)
        for script in SCRIPTS:
            (work / script).write_bytes(_official(repository, script))
        _train(work, model, data, out, packages)
        _keep(model, out / "checkpoint-epoch-0", clips)
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    print(
        json.dumps({"folder": str(FOLDER), "commit": OFFICIAL_COMMIT, "mb": round(size / 1e6, 2)})
    )


def _write_model(folder: Path) -> None:
    write_checkpoint(folder, training_model(), TINY_CODEC, seed=0)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for key, tensor in tensors.items():
        if tensor.ndim > 1:
            tensors[key] = tensor * _WEIGHT_SCALE
    save_file(tensors, path, {"format": "pt"})


def _write_clips(path: Path) -> list[dict[str, Any]]:
    generator = np.random.RandomState(0)
    clips: list[dict[str, Any]] = []
    for _ in range(_CLIPS):
        words = generator.choice(_WORDS, size=generator.randint(1, 6))
        codes = generator.randint(0, 64, size=(generator.randint(2, 9), 16))
        clips.append({"text": " ".join(words), "audio_codes": codes.tolist()})
    lines = [{"audio": "", "ref_audio": str(REFERENCE_AUDIO), **clip} for clip in clips]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return clips


def _official(repository: Path, script: str) -> bytes:
    name = f"{OFFICIAL_COMMIT}:finetuning/{script}"
    return subprocess.run(
        ["git", f"--git-dir={repository}", "show", name], check=True, capture_output=True
    ).stdout


def _train(work: Path, model: Path, data: Path, out: Path, packages: Path) -> None:
    packages.mkdir(parents=True, exist_ok=True)
    folder = package_folder(OFFICIAL_TRAINING, packages)
    paths = (work, model, data, out, FOLDER / "recorded.npz")
    subprocess.run(
        [sys.executable, "-m", "benchmarks.parity.official_training", *map(str, paths)],
        check=True,
        stdout=sys.stderr,
        cwd=ROOT,
        env=os.environ | ahead_of_others(folder),
    )


def _keep(model: Path, trained: Path, clips: list[dict[str, Any]]) -> None:
    shutil.copytree(model, FOLDER / "base", ignore=shutil.ignore_patterns(CODEC_FOLDER))
    (FOLDER / "trained").mkdir()
    shutil.copy(trained / "config.json", FOLDER / "trained")
    shutil.copy(trained / "model.safetensors", FOLDER / "trained")
    (FOLDER / "clips.json").write_text(json.dumps(clips, ensure_ascii=False))


if __name__ == "__main__":
    typer.run(main)
