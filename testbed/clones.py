"""Cloned voices of tiny models, and servers that speak them."""

from typing import Any

import pytest
import torch

from testbed.linked_models import link_with_short_runs
from testbed.parity_reference import REFERENCE
from voiceagent_tts.config import Settings
from voiceagent_tts.model.prompt import Cloned

WIDTH = 64
"""Numbers of a speaker embedding of the tiny Base model."""


def voice_file(*embedding: float) -> bytes:
    """A voice file with this embedding; one number stands for all of them."""
    return Cloned(torch.tensor(embedding if len(embedding) > 1 else embedding * WIDTH)).to_bytes()


def cloning_settings(
    folders: pytest.TempPathFactory, frames: int = 24, **settings: Any
) -> Settings:
    """Settings of a server of the tiny Base model over an empty folder of voices."""
    models = folders.mktemp("models")
    names = ("base-0b6", *settings.pop("models", ()))
    for name in names:
        link_with_short_runs(REFERENCE / name, models / name, frames=frames)
    return Settings(
        port=0,
        engine="qwen3",
        models=tuple(str(models / name) for name in names),
        threads=1,
        aligner="off",
        voices_folder=folders.mktemp("voices"),
        **settings,
    )
