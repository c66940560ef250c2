from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from voiceagent_tts.errors import EngineError
from voiceagent_tts.espeak import library as library_module
from voiceagent_tts.espeak.library import ESPEAK_RATE_HZ, EspeakLibrary, SpeechEvent

VOICE = "gmw/en-US"

_VARIATION = ESPEAK_RATE_HZ // 40
"""Difference in samples that espeak may have between two calls with one text."""


class Recording:
    """Records the chunks of `synthesize`; stops after `max_chunks`."""

    def __init__(self, max_chunks: int = 1_000_000) -> None:
        self.chunks: list[np.ndarray] = []
        self.events: list[SpeechEvent] = []
        self._max_chunks = max_chunks

    def __call__(self, samples: np.ndarray, events: list[SpeechEvent]) -> bool:
        self.chunks.append(samples)
        self.events += events
        return len(self.chunks) < self._max_chunks

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate(self.chunks)


@pytest.mark.parametrize(
    "voice", ["en+" + "x" * 37, "x" * 5000, "en+" * 500, "gmw/en\0x", "en+ü" * 19]
)
def test_a_long_name_of_a_voice_is_unknown(library: EspeakLibrary, voice: str) -> None:
    """Espeak itself would end the process: it copies the name of a variant into 40 bytes."""
    for call in (library.load_voice, lambda name: library.phonemes("one", name)):
        with pytest.raises(EngineError, match="espeak-ng has no voice") as refused:
            call(voice)
        assert len(refused.value.message) < 100
    assert library.phonemes("one", VOICE)


def test_a_stopped_speech_leaves_the_library_usable(library: EspeakLibrary) -> None:
    before, stopped, after = Recording(), Recording(max_chunks=2), Recording()
    library.synthesize("One two three.", VOICE, 175, 50, before)
    assert not library.synthesize("A long sentence. " * 500, VOICE, 175, 50, stopped)
    assert len(stopped.chunks) == 2
    assert library.synthesize("One two three.", VOICE, 175, 50, after)
    assert [e.char_index for e in after.events] == [e.char_index for e in before.events]
    assert abs(len(after.samples) - len(before.samples)) < _VARIATION


def test_an_error_in_the_callback_reaches_the_caller(library: EspeakLibrary) -> None:
    """The exception of a callback is raised, although ctypes alone would only print it."""

    def fail(samples: np.ndarray, events: list[SpeechEvent]) -> bool:
        raise LookupError("from the callback")

    with pytest.raises(LookupError, match="from the callback"):
        library.synthesize("One two three.", VOICE, 175, 50, fail)
    assert library.synthesize("One.", VOICE, 175, 50, Recording())


@pytest.mark.parametrize("voice", ["nowhere", "", "../../etc/passwd", "gmw/../../x"])
def test_an_unknown_voice_is_an_engine_error(library: EspeakLibrary, voice: str) -> None:
    with pytest.raises(EngineError, match="has no voice"):
        library.synthesize("One.", voice, 175, 50, Recording())
    assert library.synthesize("One.", VOICE, 175, 50, Recording())


def test_every_listed_voice_and_variant_speaks(library: EspeakLibrary) -> None:
    """Voices without a dictionary are not listed, so every listed one produces sound."""
    for name in [v.identifier for v in library.voices()] + [
        f"{VOICE}+{variant.name}" for variant in library.variants()
    ]:
        recording = Recording()
        assert library.synthesize("5 a ა", name, 175, 50, recording)
        assert np.abs(recording.samples.astype(int)).max() > 1000, name
    assert {"cmn", "en-us", "de", "yue"} <= {voice.language for voice in library.voices()}


def test_threads_wait_for_each_other(library: EspeakLibrary) -> None:
    """Two threads inside espeak would crash the process; each gets what it would get alone."""
    texts = {"gmw/de": "Guten Tag, wie geht es Ihnen?", "roa/es": "Hola, buenos días a todos."}
    alone = {voice: library.phonemes(text, voice) for voice, text in texts.items()}
    with ThreadPoolExecutor(4) as threads:
        voices = list(texts) * 50
        found = threads.map(lambda voice: library.phonemes(texts[voice], voice), voices)
        assert list(found) == [alone[voice] for voice in voices]


def test_a_long_data_path_is_linked_to_a_short_one(tmp_path) -> None:
    """Espeak does not start with a path of 160 bytes or more."""
    long = tmp_path.joinpath(*["a" * 50] * 4)
    long.mkdir(parents=True)
    short = library_module._short_path(long)
    assert len(str(short)) <= 150
    assert short.resolve() == long.resolve()
    assert library_module._short_path(tmp_path) == tmp_path


def test_settings_do_not_affect_the_next_text(library: EspeakLibrary) -> None:
    """Espeak keeps its parameters, so every call sets all of them."""
    normal, other, again = Recording(), Recording(), Recording()
    library.synthesize("One two three four.", VOICE, 175, 50, normal)
    library.synthesize("One two three four.", VOICE + "+f3", 350, 90, other)
    library.synthesize("One two three four.", VOICE, 175, 50, again)
    assert len(other.samples) < 0.7 * len(normal.samples)
    assert abs(len(again.samples) - len(normal.samples)) < _VARIATION
