import pytest

from testbed.segment_driving import Driver
from voiceagent_tts.espeak.catalogue import VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture(scope="session")
def library() -> EspeakLibrary:
    return EspeakLibrary.open()


@pytest.fixture(scope="session")
def catalogue(library: EspeakLibrary) -> VoiceCatalogue:
    return VoiceCatalogue(library.voices(), library.variants())
