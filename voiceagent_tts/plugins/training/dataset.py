"""A prepared dataset on disk: codes of every clip, the speaker embedding, and what they came from.

dataset.json                    one entry per clip: name, text, language, frames, file of codes
speaker.safetensors             `speaker_embedding` [D] float32
clips/KEY.wav, clips/KEY.npz    each clip as it will be learnt; its codes [F, K] int16
report.json                     what was dropped and why, and the lengths of the rest
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.training.files import written

DATASET_FILE = "dataset.json"
SPEAKER_FILE = "speaker.safetensors"
SPEAKER_KEY = "speaker_embedding"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class ClipEntry:
    """A prepared clip in `dataset.json`.

    Attributes:
        name: the user's name of the recording.
        key: name of the clip's files in `clips/`.
        text: transcript.
        language: language that the manifest names, or None.
        frames: F, number of codec frames.
        snr_db: power of the speech relative to the noise.
    """

    name: str
    key: str
    text: str
    language: str | None
    frames: int
    snr_db: float


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One clip to train on.

    Attributes:
        name: the user's name of the recording.
        text: transcript.
        codes: [F, K] int64, codebook 0 first.
    """

    name: str
    text: str
    codes: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A prepared dataset in memory.

    Attributes:
        examples: all clips.
        speaker_embedding: [D] float32, from the speaker encoder of the Base model.
    """

    examples: list[Example]
    speaker_embedding: Tensor


def write_dataset(folder: Path, entries: list[ClipEntry], reference: str) -> None:
    """Write `dataset.json`, the last file of a dataset; `reference` names the speaker's clip."""
    clips = [asdict(entry) for entry in entries]
    document = {"format": FORMAT, "reference": reference, "clips": clips}
    text = json.dumps(document, ensure_ascii=False, indent=1)
    with written(folder / DATASET_FILE) as unfinished:
        unfinished.write_text(text, "utf-8")


def read_dataset(folder: Path) -> Dataset:
    """Read a prepared dataset.

    Raises:
        InvalidRequestError: the folder has no complete dataset.
    """
    path = folder / DATASET_FILE
    try:
        document = json.loads(path.read_text("utf-8"))
        entries = [ClipEntry(**clip) for clip in document["clips"]]
        examples = [_example(folder, entry) for entry in entries]
        speaker = load_file(folder / SPEAKER_FILE)[SPEAKER_KEY]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InvalidRequestError(
            f"{folder}: expected a dataset of `voiceagent-tts finetune prepare`; "
            f"{type(error).__name__}: {_detail(error)}; prepare it again"
        ) from error
    return Dataset(examples, speaker.float())


def _example(folder: Path, entry: ClipEntry) -> Example:
    codes, _ = read_codes(folder / "clips" / f"{entry.key}.npz")
    if len(codes) != entry.frames:
        raise ValueError(f"{entry.name}: expected {entry.frames} frames, got {len(codes)}")
    return Example(entry.name, entry.text, torch.from_numpy(codes.astype(np.int64)))


def read_codes(path: Path) -> tuple[np.ndarray, float]:
    """Read a clip's codes, [F, K] int16, and its signal-to-noise ratio in dB."""
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["codes"], float(arrays["snr_db"])


def _detail(error: Any) -> str:
    return " ".join(str(error).split())[:200]
