"""Voices whose networks predict durations, and speech of them with its words."""

from collections.abc import Mapping
from functools import cache, partial

from testbed.segment_driving import Driver, credit, pcm_of, words_of
from voiceagent_tts.hibari.load import load_voices
from voiceagent_tts.hibari.published import DEFAULT_VOICE
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.plugins.bench.bargein.known_speech import KnownSpeech
from voiceagent_tts.seam.commands import SpeechOptions


def phoneme_driver(
    voices: Mapping[str, LoadedVoice], *, max_rows: int = 512, threads: int = 1
) -> Driver:
    """Step the engine of some voices, the default first."""
    return Driver(
        partial(
            PhonemeEngine,
            voices=voices, name="test", model="a voice", max_rows=max_rows, threads=threads,
        )
    )  # fmt: skip


@cache
def heart() -> LoadedVoice:
    return load_voices((DEFAULT_VOICE,))[DEFAULT_VOICE]


def natural(text: str, pace: float = 1.0, voice: LoadedVoice | None = None) -> KnownSpeech:
    """Speak `text`, `pace` times as fast as normal; the words have the engine's times."""
    voice = voice or heart()
    name, language = voice.details.name, (voice.details.language or "").partition("-")[0]
    driver = phoneme_driver({name: voice})
    options = SpeechOptions(seed=1, speed=pace)
    events = driver.run(driver.submit(1, text, language=language, options=options), credit(1))
    driver.engine.close()
    return KnownSpeech(language, name, text, pcm_of(events, 1), tuple(words_of(events, 1)))
