"""Does the official package speak what a model learnt here?

Fine-tunes a tiny Base model on four clips of random codes until it knows them, exports it, and lets
the official package speak their texts. Takes about a minute on a CPU.

    python -m benchmarks.parity.finetuned
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.engine.peer_packages import OFFICIAL_TRAINING, ahead_of_others, package_folder
from testbed.tiny_dataset import random_dataset
from voiceagent_tts.plugins.training.dataset import read_dataset
from voiceagent_tts.plugins.training.export import ExportJob, export
from voiceagent_tts.plugins.training.model_card import Consent
from voiceagent_tts.plugins.training.options import TrainOptions
from voiceagent_tts.plugins.training.train import TrainJob, train

BASE = Path(__file__).parents[2] / "tests" / "reference" / "base-0b6"
SPEAKER = "anna"
_OPTIONS = TrainOptions(
    epochs=150,
    batch_clips=4,
    accumulation=1,
    learning_rate=3e-3,
    weight_decay=0.0,
    precision="float32",
    recompute=False,
    validation_share=0.0,
    evaluate_steps=1_000,
)


def main(
    packages: Annotated[Path, typer.Option(help="folder for the official packages")] = Path(
        "out/peers"
    ),
) -> None:
    """Print how many codes the official package speaks as they were learnt."""
    packages.mkdir(parents=True, exist_ok=True)
    official = package_folder(OFFICIAL_TRAINING, packages)
    torch.set_num_threads(1)  # tiny products only make others wait
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        data = random_dataset(work / "data", BASE, clips=4)
        train(TrainJob(data, BASE, work / "run", torch.device("cpu"), _OPTIONS))
        model = work / SPEAKER
        consent = Consent("Random numbers agreed.")
        export(ExportJob(work / "run", model, SPEAKER, consent, torch.float32))
        clips = read_dataset(data).examples
        spoken = _speak(model, [clip.text for clip in clips], official)
    learnt = [clip.codes.tolist() for clip in clips]
    codes = sum(len(frame) for clip in learnt for frame in clip)
    equal = sum(
        a == b
        for ours, theirs in zip(learnt, spoken, strict=True)
        for frame, other in zip(ours, theirs, strict=False)
        for a, b in zip(frame, other, strict=True)
    )
    frames_equal = [len(clip) for clip in learnt] == [len(clip) for clip in spoken]
    print(json.dumps({"codes": codes, "equal": equal, "lengths_equal": frames_equal}))


def _speak(model: Path, texts: list[str], packages: Path) -> list[list[list[int]]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.parity.official_finetuned", str(model), SPEAKER],
        input=json.dumps(texts),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | ahead_of_others(packages),
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    typer.run(main)
