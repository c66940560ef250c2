"""The voice of the package: real weights, which are loaded once for each process."""

from collections.abc import Iterator

import pytest

from testbed.hibari_driving import heart, phoneme_driver
from testbed.segment_driving import Driver
from voiceagent_tts.phonemes.reading import LoadedVoice


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = phoneme_driver({"heart": heart()})
    yield driver
    driver.engine.close()


@pytest.fixture(scope="session")
def voice() -> LoadedVoice:
    return heart()
