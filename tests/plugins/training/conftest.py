"""Recordings by the embedded voice, and a dataset of them."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from testbed.known_speech import espeak
from testbed.parity_reference import REFERENCE
from voiceagent_tts.core import SAMPLE_RATE_HZ

BASE = REFERENCE / "base-0b6"
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "She sells sea shells by the sea shore.",
    "How much wood would a woodchuck chuck?",
    "We are open on Monday and on Friday.",
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Compute with one thread: tiny products only make others wait."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def speech() -> dict[str, np.ndarray]:
    """Return each text as [S] float32 at 24 kHz, spoken by the embedded voice."""
    return {text: _samples(text) for text in TEXTS}


def _samples(text: str) -> np.ndarray:
    return np.frombuffer(espeak(text, "en", "en").pcm, "<i2").astype(np.float32) / 32_768


@pytest.fixture
def recordings(tmp_path: Path, speech: dict[str, np.ndarray]) -> Path:
    """Return a folder with the recordings `0.wav` to `3.wav` and their transcripts."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number, (text, samples) in enumerate(speech.items()):
        soundfile.write(folder / f"{number}.wav", samples, SAMPLE_RATE_HZ)
        (folder / f"{number}.txt").write_text(text)
    return folder
