"""How fast the networks that predict durations speak here: seconds per second of audio."""

import time
from collections.abc import Iterator
from typing import Any

from testbed.hibari_driving import heart, phoneme_driver
from testbed.kokoro import kokoro_voices
from testbed.missing import MissingPartError
from testbed.segment_driving import Driver, credit, samples_of
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.phonemes.reading import LoadedVoice

_TEXTS = (
    "Please take a seat, and I will be with you in five minutes.",
    "Your order left our warehouse this morning and should reach you on Friday.",
)
"""Spoken at the same time, as by two callers."""
_THREADS = (1, 2)


def speed_of() -> Iterator[dict[str, Any]]:
    """Yield the real-time factor of each voice with each number of threads.

    Kokoro is measured where `make kokoro` was run.
    """
    for name, voice, rounds in _voices():
        for threads in _THREADS:
            driver = phoneme_driver({voice.details.name: voice}, threads=threads)
            _rtf(driver)  # what a first text needs is not measured
            rtf = min(_rtf(driver) for _ in range(rounds))
            driver.engine.close()
            yield {"voice": name, "threads": threads, "rtf": round(rtf, 4)}


def _voices() -> Iterator[tuple[str, LoadedVoice, int]]:
    """Name, voice, and how often it is measured."""
    yield "hibari", heart(), 20
    try:
        yield "Kokoro, 8 bits", kokoro_voices()["af_heart"], 3
    except MissingPartError:
        return


def _rtf(driver: Driver) -> float:
    began_s = time.perf_counter()
    contexts = range(1, len(_TEXTS) + 1)
    submits = (driver.submit(number, _TEXTS[number - 1]) for number in contexts)
    events = driver.run(*submits, *map(credit, contexts))
    samples = sum(samples_of(events, number) for number in contexts)
    return (time.perf_counter() - began_s) * SAMPLE_RATE_HZ / samples
