"""Check that a forced aligner computes correctly on this machine and finds words in speech.

The first checks hold for any weights: files, and equal times for a clip alone and in a batch. The
others test what training put into the weights: the times of words of a voice whose word times are
known, in ten languages. This module prints nothing; the caller provides the speech.
"""

import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.plugins.checks.verify import Check
from voiceagent_tts.plugins.forced.load import Precision, load_aligner
from voiceagent_tts.plugins.forced.prompt import Clip

_FILE = files("voiceagent_tts.plugins.checks").joinpath("texts.toml")
TEXTS: dict[str, str] = tomllib.loads(_FILE.read_text("utf-8"))
"""Texts to speak by language, without numbers or abbreviations."""

_PUBLISHED = "published: 28 to 43 ms"
"""Mean distance from manual and MFA labels over all languages; 76 ms in the worst language.

Source: arXiv 2601.21337, table 9.
"""
_MAX_ERROR_MS = 80.0
_MAX_BIAS_MS = 45.0
"""Half a step of 80 ms, if all times were rounded one way; a wrong prompt template gives 92."""
_ROUNDING_SAMPLES = ms_to_samples(80)
"""One time class (80 ms): two neighbouring classes may be almost equally likely."""


@dataclass(frozen=True, slots=True)
class KnownSpeech:
    """A clip and the true times of its words; only exactly known times are compared."""

    clip: Clip
    truth: tuple[WordTimestamp, ...]


def verify(
    model: str | Path,
    device: str | None,
    precision: Precision | None,
    speak: Callable[[], Sequence[KnownSpeech]],
) -> Iterator[Check]:
    """Check an aligner; yields each result as soon as it is available."""
    started = time.perf_counter()
    try:
        aligner = load_aligner(model, device, precision)
    except CheckpointError as error:
        yield Check("files, keys, shapes", "load", error.message, holds=False)
        return
    millions = sum(weight.numel() for weight in aligner.network.parameters()) / 1e6
    found = f"{millions:.0f} million weights, in {time.perf_counter() - started:.1f} s"
    yield Check("files, keys, shapes", "load", found, holds=True)
    speech = speak()
    clips = [known.clip for known in speech]
    alone = [aligner.align([clip])[0] for clip in clips]
    started = time.perf_counter()
    together = aligner.align(clips)
    took_s = time.perf_counter() - started
    yield _same("clip alone and in a batch", alone, together)
    yield _is_quick(took_s, sum(map(_samples, clips)) / SAMPLE_RATE_HZ)
    for known, times in zip(speech, alone, strict=True):
        yield compare(known, times)


def compare(known: KnownSpeech, times: Sequence[WordTimestamp]) -> Check:
    """Compare the times of one clip with the truth."""
    pairs = [
        (_ms(found.start_sample - truth.start_sample), _ms(found.end_sample - truth.end_sample))
        for truth, found in zip(known.truth, times, strict=True)
        if truth.is_exact and truth.end_sample is not None and found.end_sample is not None
    ]
    bias_ms = fmean(off_ms[0] for off_ms in pairs)
    error_ms = fmean(abs(off_ms) for pair in pairs for off_ms in pair)
    return Check(
        f"words of {known.clip.language}",
        f"error below {_MAX_ERROR_MS:g} ms ({_PUBLISHED}), bias within {_MAX_BIAS_MS:g} ms",
        f"error {error_ms:.0f} ms, bias {bias_ms:+.0f} ms, {len(pairs)} words",
        holds=error_ms < _MAX_ERROR_MS and abs(bias_ms) < _MAX_BIAS_MS,
    )


def _ms(samples: int) -> float:
    return samples * 1000 / SAMPLE_RATE_HZ


def _is_quick(took_s: float, speech_s: float) -> Check:
    found = f"{took_s:.2f} s for {speech_s:.0f} s of speech, in one pass"
    return Check("speed", "faster than real time", found, took_s < speech_s)


def _samples(clip: Clip) -> int:
    return len(clip.pcm) // BYTES_PER_SAMPLE


def _same(
    claim: str,
    expected: Sequence[Sequence[WordTimestamp]],
    found: Sequence[Sequence[WordTimestamp]],
) -> Check:
    moves = [
        abs(before.start_sample - after.start_sample)
        for each_before, each_after in zip(expected, found, strict=True)
        for before, after in zip(each_before, each_after, strict=True)
    ]
    moved = sum(move > _ROUNDING_SAMPLES for move in moves)
    return Check(claim, "equal times", f"{moved} of {len(moves)} words moved", not moved)
