"""A driver that steps hibari with the voice of its package, and speech of it with its words."""

from collections.abc import Mapping
from functools import cache

from testbed import espeak_driving
from voiceagent_tts.hibari.load import load_voices
from voiceagent_tts.hibari.published import DEFAULT_VOICE
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.voice import LoadedVoice
from voiceagent_tts.plugins.bench.bargein.known_speech import Spoken
from voiceagent_tts.seam.commands import Credit, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Engine


class Driver(espeak_driving.Driver):
    """An engine with an inbox that a test fills and a list of all its events.

    Args:
        max_rows: maximum number of open contexts.
        threads: rows that are computed at the same time.
        voices: its voices, the default first. Default: hibari's.
    """

    def __init__(
        self,
        max_rows: int = 512,
        threads: int = 1,
        voices: Mapping[str, LoadedVoice] | None = None,
    ) -> None:
        self._threads = threads
        self._voices = voices or {DEFAULT_VOICE: heart()}
        super().__init__(max_rows)

    def _make_engine(self, max_rows: int) -> Engine:
        return PhonemeEngine(
            self._inbox,
            self.events.append,
            self._voices,
            name="test",
            model="a voice",
            max_rows=max_rows,
            threads=self._threads,
        )


@cache
def heart() -> LoadedVoice:
    """The voice of the package."""
    return load_voices((DEFAULT_VOICE,))[DEFAULT_VOICE]


def natural(text: str, pace: float = 1.0, voice: LoadedVoice | None = None) -> Spoken:
    """Speak `text`, `pace` times as fast as normal; the words have the engine's times.

    Args:
        text: what is said, in the language of the voice.
        pace: how fast.
        voice: the voice. Default: hibari's.
    """
    voice = voice or heart()
    name, language = voice.details.name, (voice.details.language or "").partition("-")[0]
    driver = Driver(voices={name: voice})
    options = SpeechOptions(seed=1, speed=pace)
    submit = Submit(1, text, 0, False, name, language, options=options)
    events = driver.run(submit, Credit(1, 0.0, espeak_driving.UNLIMITED))
    driver.engine.close()
    pcm, words = espeak_driving.pcm_of(events, 1), espeak_driving.words_of(events, 1)
    return Spoken(language, name, text, pcm, tuple(words))
