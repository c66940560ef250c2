"""The voice of hibari's package: what is shared is tested with the network that is quick."""

import pytest

from testbed.hibari_driving import heart
from voiceagent_tts.phonemes.reading import LoadedVoice


@pytest.fixture(scope="session")
def voice() -> LoadedVoice:
    return heart()
