"""Prepared datasets with random codes, for training tiny models without any audio."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.plugins.training.dataset import (
    SPEAKER_FILE,
    SPEAKER_KEY,
    ClipEntry,
    write_dataset,
)

_TEXTS = ("Hello there.", "How are you?", "We are open.", "Good morning!")


def random_dataset(folder: Path, base: Path, clips: int) -> Path:
    """Write a dataset of clips with 6 to 12 random frames, and a random speaker."""
    talker = read_model_config(base).talker_config
    generator = torch.Generator().manual_seed(11)
    (folder / "clips").mkdir(parents=True)
    entries: list[ClipEntry] = []
    for number in range(clips):
        frames = 6 + number % 7
        shape = (frames, talker.num_code_groups)
        end = talker.code_predictor_config.vocab_size
        write_codes(
            folder / "clips" / f"{number}.npz", torch.randint(0, end, shape, generator=generator)
        )
        text = _TEXTS[number % len(_TEXTS)] + " Yes." * (number // len(_TEXTS))
        entries.append(ClipEntry(f"{number}.wav", str(number), text, None, frames, 40.0))
    speaker = torch.randn(talker.hidden_size, generator=generator)
    save_file({SPEAKER_KEY: speaker}, folder / SPEAKER_FILE)
    write_dataset(folder, entries, entries[0].name)
    return folder


def write_codes(path: Path, codes: Tensor) -> None:
    np.savez_compressed(path, codes=codes.numpy().astype(np.int16), snr_db=np.float64(40.0))
