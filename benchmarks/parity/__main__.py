"""Compare codes and samples of this network with those of the official package.

Runs every case of a folder of official results (see tests/reference/README.md), greedy and in
float32. Codes must be equal in every frame. If the network's two best choices are so close that
rounding decides, either is correct: such a case counts as a near tie. Audio, reference codes and
speaker embedding must agree within `TOLERANCE`. The exit status is 1 if anything differs.

Codecs with random weights amplify rounding, some beyond `TOLERANCE`: the official package differs
from itself by 1.3e-4 with another number of threads. So audio is compared in two steps.
`max_wav_error` is the difference between the official samples and those of the same operations in
the same order (`benchmarks.parity.plain_codec`), in float32; it is zero on the same kind of
machine. `max_stream_error` is the difference between our decoder, streaming in random windows, and
the plain operations, both in float64, so that it contains no rounding. `max_rounding` is how far
float32 moves our samples; on another kind of machine, the official samples may differ by twice as
much.
"""

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.common.report import publish
from benchmarks.parity.plain_codec import PlainCodec, load_plain_codec
from testbed.official_cases import GREEDY, Case, official_voice, read_cases
from testbed.parity import Verdict, compare_codes, decode_in_windows, random_windows
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.prompt import Cloned, Prompt
from voiceagent_tts.plugins.recordings.clone import load_reference_encoder
from voiceagent_tts.plugins.recordings.file_reader import read_audio

TOLERANCE = 1e-4
"""Maximum difference of samples in [-1, 1], and of the values of a speaker embedding."""
PARTITIONS = 10
"""Number of random partitions of the codec's frames into windows."""

STREAM_TOLERANCE = 1e-6
"""Maximum difference of samples computed in float64."""

_MAX_ROUNDING = 5 * TOLERANCE
"""Maximum difference of samples that float32 rounding explains."""
_INCOMPARABLE = 2.0
"""Largest possible difference of two samples; stands for audio of different lengths."""
_CODEC_FRAMES = "codec-130-frames"
_THREADS = (2, 1, 4)
"""Numbers of threads that the official package may have used; each sums in another order."""

_STYLES = {"equal": "green", "near tie": "yellow", "different": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report: a case, a reference, or the codec alone.

    Attributes:
        name: name of the compared item.
        kind: kind of the item.
        frames: number of official frames.
        verdict: result of comparing the codes.
        error: difference of the official samples from those of the plain operations, or of the
            official speaker embedding from ours; None without samples and embedding.
        stream: difference of our samples from those of the plain operations, in float64.
        rounding: difference of our samples in float32 from those in float64.
    """

    name: str
    kind: Literal["case", "reference", "codec"]
    frames: int
    verdict: Verdict
    error: float | None = None
    stream: float = 0.0
    rounding: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the output equals the official one, except for rounding."""
        allowed = max(TOLERANCE, 2 * self.rounding)
        is_near = (self.error or 0.0) <= allowed and self.rounding <= _MAX_ROUNDING
        return self.verdict != "different" and is_near and self.stream <= STREAM_TOLERANCE


SoundErrors = tuple[float, float, float]
"""A finding's `error`, `stream` and `rounding`."""


@dataclass(frozen=True, slots=True)
class _SoundCheck:
    """One codec: our streaming decoder in float32 and in float64, and the plain decoder."""

    fast: CodecDecoder
    exact: CodecDecoder
    plain: PlainCodec

    def compare(
        self,
        codes: Tensor,
        expected: Tensor,
        partitions: Iterable[Sequence[int]],
        before: Tensor | None = None,
    ) -> SoundErrors:
        """Return the largest errors over all partitions; `before` are the preceding frames."""
        error = min(self._errors(codes, expected, before))
        plain = _decode_plainly(replace(self.plain, dtype=torch.float64), codes, before)
        streams, roundings = [0.0], [0.0]
        for windows in partitions:
            exact = decode_in_windows(self.exact, codes, windows, before)
            fast = decode_in_windows(self.fast, codes, windows, before)
            streams.append(_largest_difference(exact, plain))
            roundings.append(_largest_difference(fast, exact))
        return error, max(streams), max(roundings)

    def _errors(self, codes: Tensor, expected: Tensor, before: Tensor | None) -> Iterator[float]:
        """Yield the error of the official samples per number of threads, until one is zero."""
        usual = torch.get_num_threads()
        for threads in _THREADS:
            torch.set_num_threads(threads)
            error = _largest_difference(_decode_plainly(self.plain, codes, before), expected)
            torch.set_num_threads(usual)
            yield error
            if error == 0.0:
                return


def _decode_plainly(plain: PlainCodec, codes: Tensor, before: Tensor | None) -> Tensor:
    """Decode frames ([F, K]) after `before`, whose audio is not returned; returns [F * 1920]."""
    if before is None:
        return plain.decode(codes.T[None])[0]
    samples = plain.decode(torch.cat((before, codes)).T[None])[0]
    return samples[len(before) * FRAME_SAMPLES :]


class _Model:
    """Compares one checkpoint of the folder with its cases."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._checkpoint = load_checkpoint(folder / name)
        self._name = name
        self._codec = load_codec(folder / name)
        self._sound = _SoundCheck(
            self._codec.decoder,
            load_codec(folder / name, torch.float64).decoder,
            load_plain_codec(folder / name),
        )
        self._heard: dict[str, Cloned] = {}

    def compare(self, case: Case) -> Iterator[Finding]:
        """Compare codes and audio of a case, after its reference if that is new."""
        if case.reference is not None and case.reference not in self._heard:
            yield self._compare_reference(case.reference)
        prompt = case.prompt(self._checkpoint, self._heard.get(case.reference or ""))
        network = self._checkpoint.network
        room = len(prompt) + case.max_frames
        request = Request(prompt, GREEDY, case.max_frames)
        (made,) = generate_codes(network, [request], rows=1, capacity=room)
        verdict = compare_codes(network, case, prompt, made)
        errors = self._sound_errors(case, prompt)
        yield Finding(str(case), "case", len(case.codes), verdict, *errors)

    def _compare_reference(self, reference: str) -> Finding:
        """Clone a reference, and compare the result with the official clone.

        A folder stores the clone of one Base checkpoint; cases of another one use our clone.
        """
        samples = torch.from_numpy(read_audio((self._folder / reference).read_bytes()).copy())
        encoder = load_reference_encoder(self._folder / self._name)
        ours = encoder.clone(samples, text="-", tail_silence_s=0)
        official = official_voice(self._folder, reference)
        assert ours.reference_codes is not None and official.reference_codes is not None
        is_equal = torch.equal(ours.reference_codes, official.reference_codes)
        verdict = "equal" if is_equal else "different"
        error = _largest_difference(ours.speaker_embedding, official.speaker_embedding)
        finding = Finding(reference, "reference", len(official.reference_codes), verdict, error)
        self._heard[reference] = official if finding.holds else ours
        return finding

    def _sound_errors(self, case: Case, prompt: Prompt) -> SoundErrors | tuple[()]:
        """Compare the audio of the official codes; that of a clone follows its reference."""
        if case.samples is None:
            return ()
        windows = random_windows(len(case.codes), random.Random(str(case)))
        return self._sound.compare(case.codes, case.samples, [windows], prompt.reference_codes)

    def compare_codec(self) -> Iterator[Finding]:
        path = self._folder / f"{_CODEC_FRAMES}.npz"
        if path.exists():
            with np.load(path) as arrays:
                codes = torch.from_numpy(arrays["codes"]).long()
                expected = torch.from_numpy(arrays["wav"])
            errors = self._partition_errors(codes, expected)
            yield Finding(_CODEC_FRAMES, "codec", len(codes), "equal", *errors)

    def _partition_errors(self, codes: Tensor, expected: Tensor) -> SoundErrors:
        """Return the errors over all partitions; the maximum if the frames are of another codec."""
        if codes.shape[1] != self._codec.codebooks or codes.max() >= self._codec.codebook_size:
            return _INCOMPARABLE, 0.0, 0.0
        partitions = [random_windows(len(codes), random.Random(n)) for n in range(PARTITIONS)]
        return self._sound.compare(codes, expected, partitions)


def _largest_difference(made: Tensor, expected: Tensor) -> float:
    if made.shape != expected.shape:
        return _INCOMPARABLE
    return float((made - expected).abs().max())


@torch.inference_mode()
def compare_folder(folder: Path) -> list[Finding]:
    """Compare everything in a folder.

    Raises:
        InvalidRequestError: the folder has no cases.
        CheckpointError: a checkpoint in the folder does not load.
    """
    cases = sorted(read_cases(folder), key=lambda case: case.checkpoint)
    found: list[Finding] = []
    for name, of_checkpoint in groupby(cases, lambda case: case.checkpoint):
        model = _Model(folder, name)
        for case in of_checkpoint:
            found += model.compare(case)
        found += model.compare_codec()
    return _nearest(found)


def _nearest(found: list[Finding]) -> list[Finding]:
    """Return the best finding of each name.

    A folder does not record which checkpoint cloned its reference or produced the codec's frames.
    """
    best: dict[str, Finding] = {}
    for finding in sorted(found, key=lambda f: (f.verdict == "different", f.error or 0.0)):
        best.setdefault(finding.name, finding)
    return [best[name] for name in dict.fromkeys(finding.name for finding in found)]


def _table(found: list[Finding]) -> Table:
    table = Table("what", "frames", "codes", "error", "of the stream", "rounding")
    for finding in found:
        style = _STYLES[finding.verdict if finding.holds else "different"]
        error = "" if finding.error is None else f"{finding.error:.1e}"
        ours = [f"{number:.1e}" if number else "" for number in (finding.stream, finding.rounding)]
        table.add_row(finding.name, str(finding.frames), finding.verdict, error, *ours, style=style)
    return table


def _summary(found: list[Finding]) -> dict[str, float]:
    cases = [finding for finding in found if finding.kind == "case"]
    sounds = [f.error for f in found if f.kind != "reference" and f.error is not None]
    return {
        "cases": len(cases),
        "equal": sum(case.verdict == "equal" for case in cases),
        "near_ties": sum(case.verdict == "near tie" for case in cases),
        "max_wav_error": max(sounds, default=0.0),
        "max_stream_error": max(f.stream for f in found),
        "max_rounding": max(f.rounding for f in found),
    }


def main(reference: Annotated[Path, typer.Option(help="Folder of cases and checkpoints.")]) -> None:
    """Compare with the official package's results. Exits with 1 if anything differs."""
    console = Console(stderr=True)
    try:
        with console.status("comparing"):
            found = compare_folder(reference)
    except (VoiceAgentError, OSError) as error:
        console.print(f"parity: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    console.print(_table(found))
    publish(_summary(found))
    sys.exit(0 if all(finding.holds for finding in found) else 1)


if __name__ == "__main__":
    typer.run(main)
