"""A small published model with random weights, in a hub cache of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.pocket import SMALL_MODEL, PocketHome
from testbed.pocket_driving import Driver
from voiceagent_tts.pocket.load import load_model
from voiceagent_tts.pocket.states import PocketModel


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the hub's cache: each text of its model ends after less than a second."""
    folder = tmp_path_factory.mktemp("pocket")
    PocketHome(folder).store()
    return folder


@pytest.fixture(autouse=True)
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's client reads that cache, and has no network."""
    use_hub_cache(home, monkeypatch)
    return home


@pytest.fixture(scope="session")
def model(home: Path) -> PocketModel:
    """The loaded model; it does not sample, so its audio can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        use_hub_cache(home, patch)
        loaded = load_model(SMALL_MODEL)
    loaded.network.temp = 0.0
    return loaded


@pytest.fixture
def driver(model: PocketModel, tmp_path: Path) -> Iterator[Driver]:
    """An engine over the model."""
    driver = Driver(model, tmp_path / "clones")
    yield driver
    driver.engine.close()


def use_hub_cache(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the hub's client of this process read the cache in `home`, without a network."""
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
