import pytest

from testbed.segment_driving import Driver
from voiceagent_tts.espeak.catalogue import VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary


@pytest.fixture
def driver() -> Driver:
    """A new engine over the process's espeak-ng."""
    return Driver()


@pytest.fixture(scope="session")
def library() -> EspeakLibrary:
    """The process's espeak-ng."""
    return EspeakLibrary.open()


@pytest.fixture(scope="session")
def catalogue(library: EspeakLibrary) -> VoiceCatalogue:
    """The installed voices."""
    return VoiceCatalogue(library.voices(), library.variants())
