"""Kokoro's published weights, which are loaded once for each process."""

from collections.abc import Iterator

import pytest

from testbed.hibari_driving import phoneme_driver
from testbed.kokoro import kokoro_voices
from testbed.missing import skipped_if_missing
from testbed.segment_driving import Driver
from voiceagent_tts.phonemes.reading import LoadedVoice


@pytest.fixture(scope="session")
def voices() -> dict[str, LoadedVoice]:
    with skipped_if_missing():
        return kokoro_voices()


@pytest.fixture
def driver(voices: dict[str, LoadedVoice]) -> Iterator[Driver]:
    driver = phoneme_driver(voices)
    yield driver
    driver.engine.close()
