"""Latency of the forced aligner for clips of a segment's length, alone and in batches of eight.

The latency does not depend on the values of the weights: without `--model` they are random, in the
published sizes. The whole call is timed, from PCM to word times.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.common.report import provenance, publish
from testbed.agent_text import agent_sentences
from testbed.checkpoint import write_aligner
from testbed.published import ALIGNER
from voiceagent_tts.aligner.forced.aligner import ForcedAligner
from voiceagent_tts.aligner.forced.load import Precision, load_aligner
from voiceagent_tts.aligner.forced.prompt import Clip
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.text.words import split_words

CLIP_S = (2, 5, 10)
BATCHES = (1, 8)
_WORDS_PER_S = 3


def measure(
    aligner: ForcedAligner,
    rounds: int,
    lengths_s: Sequence[int] = CLIP_S,
    batches: Sequence[int] = BATCHES,
) -> dict[str, dict[str, float]]:
    """Median milliseconds of one pass and of each of its clips, by clip length and batch size.

    Args:
        aligner: on the device that is measured.
        rounds: timed passes of each kind, after one warm-up pass.
        lengths_s: clip lengths; all clips of a pass have one length.
        batches: clips per pass.
    """
    return {
        f"{seconds} s x {batch}": _pass_ms(
            aligner, [_clip(seconds, seed) for seed in range(batch)], rounds
        )
        for seconds in lengths_s
        for batch in batches
    }


def _pass_ms(aligner: ForcedAligner, clips: list[Clip], rounds: int) -> dict[str, float]:
    aligner.align(clips)
    took_ms: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        aligner.align(clips)  # the times are read back, so the device has finished
        took_ms.append((time.perf_counter() - started) * 1000)
    median_ms = statistics.median(took_ms)
    return {"pass_ms": round(median_ms, 2), "clip_ms": round(median_ms / len(clips), 2)}


def _clip(seconds: int, seed: int) -> Clip:
    """An agent's words at a constant rate, with noise as audio."""
    text = " ".join(islice(agent_sentences(seed), 10))
    noise = np.random.default_rng(seed).normal(0, 3000, seconds * SAMPLE_RATE_HZ)
    words = split_words(text)[: seconds * _WORDS_PER_S]
    return Clip(tuple(words), noise.astype("<i2").tobytes(), "en")


def main(
    model: Annotated[Path | None, typer.Option(help="folder; random weights without it")] = None,
    device: Annotated[str | None, typer.Option(help="a GPU where there is one")] = None,
    precision: Annotated[Precision | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 20,
    length_s: Annotated[
        list[int] | None, typer.Option(help="length of the clips; may be repeated")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(help="clips per pass; may be repeated")] = None,
) -> None:
    """Print milliseconds as one JSON line."""
    with tempfile.TemporaryDirectory(prefix="voiceagent-") as made:
        if model is None:
            write_aligner(Path(made), ALIGNER, seed=0)
        aligner = load_aligner(model or Path(made), device, precision)
    result: dict[str, Any] = {
        "device": _name(aligner.network.device),
        "precision": str(aligner.network.dtype).removeprefix("torch."),
        "median": measure(aligner, rounds, length_s or CLIP_S, batch or BATCHES),
        **provenance(),
    }
    publish(result)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


if __name__ == "__main__":
    typer.run(main)
