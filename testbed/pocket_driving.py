"""Pocket TTS over a model with random weights, which a test steps."""

from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.pocket import SMALL_MODEL, PocketHome
from testbed.segment_driving import Driver
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.plugins.pocket.engine import PocketEngine
from voiceagent_tts.plugins.pocket.load import load_model
from voiceagent_tts.plugins.pocket.states import PocketModel, VoiceStates

_FOLDER = TemporaryDirectory(prefix="pocket-")


@cache
def pocket_home() -> Path:
    """Folder of a hub's cache, made once for each process: a text ends after less than a second."""
    home = Path(_FOLDER.name)
    PocketHome(home).store()
    return home


@cache
def small_model() -> PocketModel:
    """The loaded model; it does not sample, so its audio can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        use_hub_cache(pocket_home(), patch)
        loaded = load_model(SMALL_MODEL)
    loaded.network.temp = 0.0
    return loaded


def use_hub_cache(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the hub's client of this process read the cache in `home`, without a network."""
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def pocket_driver(clones: Path, *, max_rows: int = 4, threads: int = 2) -> Driver:
    model = small_model()
    states = VoiceStates((SMALL_MODEL,), VoiceFolder(clones))
    states.find("alba", model).result()  # rows of this voice need not wait for it
    return Driver(
        partial(PocketEngine, models=[model], states=states, max_rows=max_rows, threads=threads)
    )
