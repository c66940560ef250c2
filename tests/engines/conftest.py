"""Every engine that speaks whole segments, one after the other: each keeps the same promises."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from testbed.kokoro import THOROUGH, kokoro_voices
from testbed.segment_driving import Driver, Start
from voiceagent_tts.espeak.engine import EspeakEngine


@pytest.fixture(params=["espeak", "hibari", "pocket", THOROUGH])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def start(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start the engine with a driver; it is closed after the test."""
    make: Start
    # Imported when used: each engine brings packages of its own, PyTorch among them.
    if engine == "espeak":
        make = _espeak
    elif engine == "pocket":
        from testbed.pocket_driving import pocket_driver, pocket_home, use_hub_cache

        use_hub_cache(pocket_home(), monkeypatch)
        make = partial(pocket_driver, tmp_path / "clones")
    else:
        from testbed.hibari_driving import heart, phoneme_driver

        voices = {"heart": heart()} if engine == "hibari" else kokoro_voices()
        make = partial(phoneme_driver, voices)
    with ExitStack() as stack:

        def start(**options: int) -> Driver:
            driver = make(**options)
            stack.callback(driver.engine.close)
            return driver

        yield start


def _espeak(max_rows: int = 512, threads: int = 1) -> Driver:
    return Driver(partial(EspeakEngine, max_rows=max_rows))


@pytest.fixture
def driver(start: Start) -> Driver:
    return start(threads=1)
