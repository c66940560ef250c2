"""Does this network say what the official package says, code for code and sample for sample?

Runs every case of a folder that the official package has filled (tests/reference/README.md says
how), greedy and in float32. Codes must be equal in every frame. Where the network's two best
choices are so close that rounding decides, either is right: such a case is counted as a near tie.
Sound, reference codes and speaker embedding must agree within `TOLERANCE`. The status is 1 where
anything does not.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from benchmarks.official_cases import GREEDY, Case, official_voice, read_cases
from benchmarks.report import publish
from voiceagent_tts.audio.reference import read_audio
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.clone import clone_voice
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.forced import choices_along
from voiceagent_tts.model.generate import Request, generate_codes
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Cloned, Prompt

NEAR_TIE = 1e-5
"""Of two codes whose scores are this close either may be the greater on another machine."""
TOLERANCE = 1e-4
"""Of samples in [-1, 1], and of the numbers of a speaker embedding."""
PARTITIONS = 10
"""How many ways of cutting the codec's frames into windows are tried."""

_CODEC_FRAMES = "codec-130-frames"
_MAX_WINDOW_FRAMES = 16

Verdict = Literal["equal", "near tie", "different"]
_STYLES = {"equal": "green", "near tie": "yellow", "different": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report: a case, a reference, or the codec alone.

    Attributes:
        name: of what was compared.
        kind: what that is.
        frames: how many the official package made of it.
        verdict: on its codes.
        error: the largest difference of its samples, or of its embedding; None without any.
    """

    name: str
    kind: Literal["case", "reference", "codec"]
    frames: int
    verdict: Verdict
    error: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is what the official package made, within what rounding may change."""
        return self.verdict != "different" and (self.error or 0.0) <= TOLERANCE


def compare_codes(network: Network, case: Case, prompt: Prompt, made: Tensor) -> Verdict:
    """Judge what the network has made of a case.

    A different choice makes all that follows different. So the network is led along the official
    codes, and everywhere where it would not have chosen them there must be a near tie.

    Args:
        network: the case's.
        case: with the official codes.
        prompt: the case's.
        made: [F, K] what the network made of the prompt.
    """
    expected = case.codes
    if torch.equal(made, expected):
        return "equal"
    end = network.config.talker_config.codec_eos_token_id
    # One frame more: whether to end is a choice too, except where no more frames were allowed.
    ending = torch.tensor([[end] + [0] * (network.codebooks - 1)])
    dictated = torch.cat((expected, ending))
    along = choices_along(network, prompt, dictated, GREEDY.repetition_penalty)
    differs = along.codes != dictated
    differs[-1, 1:] = False
    differs[-1, 0] &= len(expected) < case.max_frames
    is_explained = bool(differs.any()) and bool(along.margins[differs].max() < NEAR_TIE)
    return "near tie" if is_explained else "different"


def decode_in_windows(
    decoder: CodecDecoder, codes: Tensor, windows: Sequence[int], before: Tensor | None = None
) -> Tensor:
    """[F * 1920]: frames ([F, K]) decoded in windows of these lengths, as a stream.

    Args:
        decoder: the codec's.
        codes: to be decoded.
        windows: numbers of frames, F together.
        before: [F', K], frames that they follow and that are not heard.
    """
    state = decoder.new_state(1, max(windows))
    if before is not None:
        decoder.prime(before.T[None], state)
    portions = codes.T[None].split(list(windows), dim=-1)
    return torch.cat([decoder.decode(portion, state)[0] for portion in portions])


def random_windows(frames: int, rng: random.Random) -> list[int]:
    """Lengths of windows that `frames` frames are cut into."""
    windows: list[int] = []
    while (left := frames - sum(windows)) > 0:
        windows.append(min(left, rng.randint(1, _MAX_WINDOW_FRAMES)))
    return windows


class _Model:
    """One checkpoint of the folder against its cases."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._checkpoint: Checkpoint = load_checkpoint(folder / name)
        has_encoder = self._checkpoint.speaker_encoder is not None
        self._codec: Codec = load_codec(folder / name, has_encoder=has_encoder)
        self._heard: dict[str, Cloned] = {}

    def compare(self, case: Case) -> Iterator[Finding]:
        """Its codes and sound, and before them its reference where that is new."""
        if case.reference is not None and case.reference not in self._heard:
            yield self._compare_reference(case.reference)
        heard = self._heard.get(case.reference or "")
        prompt = case.prompt(self._checkpoint, heard)
        network = self._checkpoint.network
        room = len(prompt) + case.max_frames + 1
        request = Request(prompt, GREEDY, case.max_frames)
        (made,) = generate_codes(network, [request], rows=1, capacity=room)
        verdict = compare_codes(network, case, prompt, made)
        yield Finding(str(case), "case", len(case.codes), verdict, self._sound_error(case, prompt))

    def _compare_reference(self, reference: str) -> Finding:
        """Hear a reference, and judge it by what the official package heard.

        A folder keeps that of one Base checkpoint; cases of another clone what we heard.
        """
        assert self._checkpoint.speaker_encoder is not None and self._codec.encoder is not None
        samples = torch.from_numpy(read_audio((self._folder / reference).read_bytes()).copy())
        encoders = self._checkpoint.speaker_encoder, self._codec.encoder
        ours = clone_voice(samples, *encoders, text="-", tail_silence_s=0)
        official = official_voice(self._folder, reference)
        assert ours.reference_codes is not None and official.reference_codes is not None
        is_equal = torch.equal(ours.reference_codes, official.reference_codes)
        error = _largest_difference(ours.speaker_embedding, official.speaker_embedding)
        finding = Finding(
            f"{reference} by {self._name}",
            "reference",
            len(official.reference_codes),
            "equal" if is_equal else "different",
            error,
        )
        self._heard[reference] = official if finding.holds else ours
        return finding

    def _sound_error(self, case: Case, prompt: Prompt) -> float | None:
        """Of the official codes as sound, decoded as a stream; a clone's after its reference."""
        if case.samples is None:
            return None
        windows = random_windows(len(case.codes), random.Random(str(case)))
        decoder = self._codec.decoder
        sound = decode_in_windows(decoder, case.codes, windows, prompt.reference_codes)
        return _largest_difference(sound, case.samples)

    def compare_codec(self) -> Finding | None:
        """The codec alone, where the folder has frames for it and they are of this codec."""
        path = self._folder / f"{_CODEC_FRAMES}.npz"
        if not path.exists():
            return None
        with np.load(path) as arrays:
            codes = torch.from_numpy(arrays["codes"]).long()
            expected = torch.from_numpy(arrays["wav"])
        if codes.max() >= self._codec.codebook_size or codes.shape[1] != self._codec.codebooks:
            return None
        errors = [
            _largest_difference(
                decode_in_windows(
                    self._codec.decoder, codes, random_windows(len(codes), random.Random(seed))
                ),
                expected,
            )
            for seed in range(PARTITIONS)
        ]
        name = f"{_CODEC_FRAMES} by {self._name}, {PARTITIONS} partitions"
        return Finding(name, "codec", len(codes), "equal", max(errors))


def _largest_difference(made: Tensor, expected: Tensor) -> float:
    if made.shape != expected.shape:
        return float("inf")
    return float((made - expected).abs().max())


@torch.inference_mode()
def compare_folder(folder: Path, progress: Progress) -> list[Finding]:
    """Run everything in a folder.

    Raises:
        InvalidRequestError: the folder holds no cases.
        CheckpointError: a checkpoint of it does not load.
    """
    cases = read_cases(folder)
    task = progress.add_task("cases", total=len(cases))
    found: list[Finding] = []
    codecs: list[Finding] = []
    for name, of_checkpoint in groupby(sorted(cases, key=lambda c: c.checkpoint), _checkpoint_of):
        model = _Model(folder, name)
        for case in of_checkpoint:
            progress.update(task, description=str(case))
            found += model.compare(case)
            progress.advance(task)
        codecs += filter(None, [model.compare_codec()])
    return found[:0] + _of_one_checkpoint(found) + codecs[:0] + _nearest(codecs)
