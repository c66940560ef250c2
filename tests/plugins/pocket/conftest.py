"""A small published model with random weights, in a hub cache of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.pocket_driving import pocket_driver, pocket_home, small_model, use_hub_cache
from testbed.segment_driving import Driver
from voiceagent_tts.plugins.pocket.states import PocketModel


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's client reads that cache, and has no network."""
    use_hub_cache(pocket_home(), monkeypatch)
    return pocket_home()


@pytest.fixture(scope="session")
def model() -> PocketModel:
    """The loaded model."""
    return small_model()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """An engine over the model."""
    driver = pocket_driver(tmp_path / "clones")
    yield driver
    driver.engine.close()
