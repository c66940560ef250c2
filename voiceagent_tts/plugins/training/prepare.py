"""Prepares recordings for training: checks every clip, encodes it, and reports what was dropped.

Clips that were encoded before are not encoded again, so a second run after mending a few files is
quick. Knows no training.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
import torch
from safetensors.torch import save_file

from voiceagent_tts.core import FRAME_S, SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.config import CODEC_FOLDER
from voiceagent_tts.plugins.recordings.clone import load_reference_encoder
from voiceagent_tts.plugins.recordings.recogniser import Recogniser
from voiceagent_tts.plugins.recordings.reference import LONGEST_S, SHORTEST_S
from voiceagent_tts.plugins.recordings.word_errors import said_errors
from voiceagent_tts.plugins.training.dataset import (
    DATASET_FILE,
    SPEAKER_FILE,
    SPEAKER_KEY,
    ClipEntry,
    read_codes,
    write_dataset,
)
from voiceagent_tts.plugins.training.files import written
from voiceagent_tts.plugins.training.manifest import Clip, Problem, Rejection, read_clips
from voiceagent_tts.plugins.training.options import check_ranges
from voiceagent_tts.plugins.training.recording import (
    BadRecordingError,
    RecordingLimits,
    Samples,
    read_recording,
)
from voiceagent_tts.plugins.training.report import summarise, write_report
from voiceagent_tts.text.language import detect_language, normalize_language

_NAMED_CLIPS = 10
_LETTERS_PER_S = (2.0, 35.0)
"""Pace of speech, from slow Chinese to very fast Spanish; a text outside belongs to another
recording."""

Progress = Callable[[int, int], None]
"""Function called with the finished and the total number of clips."""


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What is accepted, and how.

    Attributes:
        limits: limits of a recording.
        bad: what happens to a bad clip: `skip` drops it, `refuse` ends the command after the
            report.
        recogniser: endpoint that checks transcripts; None checks only the pace.
        max_wer: word error rate above which a transcript is a mismatch.
        reference: name of the clip that gives the speaker embedding; None selects the cleanest.
    """

    limits: RecordingLimits = field(default_factory=RecordingLimits)
    bad: Literal["skip", "refuse"] = "skip"
    recogniser: Recogniser | None = None
    max_wer: float = 0.25
    reference: str | None = None

    def __post_init__(self) -> None:
        check_ranges(self, {"max_wer": (0, 10)})


def prepare(
    source: Path, base: Path, output: Path, options: PrepareOptions, progress: Progress
) -> dict:
    """Prepare a dataset.

    Args:
        source: folder of recordings, or a manifest.
        base: folder of the Base model that will be trained.
        output: folder of the dataset, which may exist.
        options: what is accepted.
        progress: called after each clip.

    Returns:
        The report, as in `report.json`.

    Raises:
        InvalidRequestError: no clip is usable, or a clip is bad and `options.bad` is `refuse`.
        CheckpointError: `base` is not a complete Base model.
        EngineError: the recogniser does not answer.
    """
    clips, rejected = read_clips(source)
    if options.reference is not None and options.reference not in {clip.name for clip in clips}:
        raise _no_reference(options.reference)
    encoder = _ClipEncoder(base, output / "clips", options.limits)
    (output / DATASET_FILE).unlink(missing_ok=True)  # not valid until this run has succeeded
    kept: list[ClipEntry] = []
    for number, clip in enumerate(clips, start=1):
        checked = _prepare_clip(clip, encoder, options)
        if isinstance(checked, ClipEntry):
            checked = _reject_duplicate(checked, kept)
        if isinstance(checked, ClipEntry):
            kept.append(checked)
        else:
            rejected.append(checked)
        progress(number, len(clips))
    reference = _choose_reference(kept, options.reference)
    report = summarise(kept, rejected, reference.name if reference else "")
    write_report(output, report)
    if rejected and (options.bad == "refuse" or not kept):
        raise _refused(rejected, output)
    assert reference is not None, "an empty dataset has been refused"
    encoder.write_speaker(reference, output / SPEAKER_FILE)
    write_dataset(output, kept, reference.name)
    return report


class _ClipEncoder:
    """Turns recordings into files of samples and codes, each once.

    Args:
        base: folder of a Base model.
        folder: folder of the clips' files; created.
        limits: limits of a recording.
    """

    def __init__(self, base: Path, folder: Path, limits: RecordingLimits) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._encoder = load_reference_encoder(base, device)
        self._device = device
        self._limits = limits
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._salt = repr(limits).encode() + _identity(base / CODEC_FOLDER)

    def encode(self, clip: Clip) -> ClipEntry:
        """Encode a recording, or find it among the clips that were encoded before.

        Raises:
            BadRecordingError: the recording cannot be trained on.
        """
        try:
            content = clip.path.read_bytes()
        except OSError as error:
            raise BadRecordingError(Problem.UNREADABLE, f"{error.strerror}") from error
        key = hashlib.sha256(self._salt + content).hexdigest()[:20]
        path = self._folder / f"{key}.npz"
        if not path.exists():
            self._write(clip.path, path)
        codes, snr_db = read_codes(path)
        return ClipEntry(clip.name, key, clip.text, clip.language, len(codes), snr_db)

    def samples(self, key: str) -> Samples:
        """Return the samples of an encoded clip: [S] float32, mono, 24 kHz."""
        samples, _ = soundfile.read(self._folder / f"{key}.wav", dtype="float32")
        return samples.astype(np.float32, copy=False)

    def write_speaker(self, reference: ClipEntry, path: Path) -> None:
        """Write the speaker embedding of a clip."""
        samples = torch.from_numpy(self.samples(reference.key)).to(self._device)
        embedding = self._encoder.speaker_encoder.embed(samples)
        with written(path) as unfinished:
            save_file({SPEAKER_KEY: embedding.clone().cpu()}, unfinished)

    def _write(self, source: Path, target: Path) -> None:
        recording = read_recording(source, self._limits)
        with written(target.with_suffix(".wav")) as unfinished:
            soundfile.write(unfinished, recording.samples, SAMPLE_RATE_HZ, "PCM_16")
        # Encoded as stored, so that the sound in the folder is what the codes stand for.
        stored = torch.from_numpy(self.samples(target.stem)).to(self._device)
        with torch.inference_mode():
            codes = self._encoder.codec_encoder.encode(stored).cpu().numpy().astype(np.int16)
        with written(target) as unfinished:
            np.savez_compressed(unfinished, codes=codes, snr_db=np.float64(recording.snr_db))


def _identity(codec: Path) -> bytes:
    """Return bytes that differ between codecs."""
    weights = codec / "model.safetensors"
    return (codec / "config.json").read_bytes() + str(weights.stat().st_size).encode()


def _prepare_clip(
    clip: Clip, encoder: _ClipEncoder, options: PrepareOptions
) -> ClipEntry | Rejection:
    try:
        entry = encoder.encode(clip)
    except BadRecordingError as error:
        return Rejection(clip.name, error.problem, error.detail)
    return _mismatch(clip, entry, encoder, options) or entry


def _mismatch(
    clip: Clip, entry: ClipEntry, encoder: _ClipEncoder, options: PrepareOptions
) -> Rejection | None:
    """Return why a transcript cannot be that of its recording, or None."""
    slowest, fastest = _LETTERS_PER_S
    pace = sum(character.isalnum() for character in clip.text) / (entry.frames * FRAME_S)
    if not slowest <= pace <= fastest:
        detail = f"expected {slowest:g} to {fastest:g} letters per second, got {pace:.1f}"
        return Rejection(clip.name, Problem.MISMATCH, detail)
    if options.recogniser is None:
        return None
    heard = options.recogniser.transcribe(encoder.samples(entry.key), clip.language)
    rate = said_errors(clip.text, heard, _language(clip)).rate
    if rate <= options.max_wer:
        return None
    detail = f"expected a word error rate of at most {options.max_wer:.0%}, got {rate:.0%}"
    return Rejection(clip.name, Problem.MISMATCH, detail)


def _language(clip: Clip) -> str:
    """The language that the manifest names, if its numbers can be read, else that of the text."""
    try:
        return normalize_language(clip.language or "")
    except InvalidRequestError:
        return detect_language(clip.text, None)


def _reject_duplicate(entry: ClipEntry, kept: list[ClipEntry]) -> ClipEntry | Rejection:
    for other in kept:
        if other.key == entry.key:
            detail = f"expected each recording once; {other.name} is the same file"
            return Rejection(entry.name, Problem.DUPLICATE, detail)
    return entry


def _choose_reference(kept: list[ClipEntry], name: str | None) -> ClipEntry | None:
    """Return the clip for the speaker embedding: the named one, or the cleanest of good length."""
    if name is not None:
        found = next((entry for entry in kept if entry.name == name), None)
        if found is None:
            raise _no_reference(name)
        return found
    long_enough = [e for e in kept if SHORTEST_S <= e.frames * FRAME_S <= LONGEST_S]
    if long_enough:
        return max(long_enough, key=lambda entry: entry.snr_db)
    return max(kept, key=lambda entry: entry.frames, default=None)


def _no_reference(name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"--reference: expected the name of a clip that was kept, got {name!r}"
    )


def _refused(rejected: list[Rejection], output: Path) -> InvalidRequestError:
    named = "; ".join(
        f"{each.name}: {each.problem}: {each.detail}" for each in rejected[:_NAMED_CLIPS]
    )
    more = len(rejected) - _NAMED_CLIPS
    return InvalidRequestError(
        f"{len(rejected)} clips cannot be trained on: {named}"
        f"{f'; and {more} more' if more > 0 else ''}; see {output / 'report.json'}"
    )
