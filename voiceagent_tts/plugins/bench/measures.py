"""The measures of utterances: how soon, how steady, how much, and what an interruption wastes.

Latencies count from the moment at which the utterance was planned to start, so that a server which
delays its callers cannot hide it (no coordinated omission). Milliseconds, unless a name says
otherwise.
"""

from collections.abc import Callable, Iterator, Sequence

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.utterance import Utterance


def _connect(utterance: Utterance) -> Iterator[float]:
    if utterance.connect_s is not None:
        yield 1000 * utterance.connect_s


def _first_byte(utterance: Utterance) -> Iterator[float]:
    if utterance.times:
        yield 1000 * (utterance.times[0] - utterance.due)


def _audible(utterance: Utterance) -> Iterator[float]:
    at = utterance.heard_at(utterance.silent_samples / SAMPLE_RATE_HZ)
    if utterance.is_audible and at is not None:
        yield 1000 * (at - utterance.due)


def _leading_silence(utterance: Utterance) -> Iterator[float]:
    if utterance.is_audible:
        yield 1000 * utterance.silent_samples / SAMPLE_RATE_HZ


def _underrun(utterance: Utterance) -> Iterator[float]:
    if utterance.times:
        yield 1000 * utterance.heard_playback.underrun_s


def _lateness(utterance: Utterance) -> Iterator[float]:
    if lateness_s := utterance.heard_playback.lateness_s:
        yield 1000 * max(lateness_s)


def _e2e(utterance: Utterance) -> Iterator[float]:
    if utterance.is_complete:
        yield 1000 * (utterance.ended - utterance.due)


def _rtf(utterance: Utterance) -> Iterator[float]:
    if utterance.is_complete and utterance.audio_s:
        yield (utterance.times[-1] - utterance.sent) / utterance.audio_s


def _word_lag(utterance: Utterance) -> Iterator[float]:
    for arrival, start_s in utterance.words:
        if (heard_at := utterance.heard_at(start_s)) is not None:
            yield 1000 * (arrival - heard_at)


def _last_frame(utterance: Utterance) -> Iterator[float]:
    if utterance.cancelled is not None:
        last = utterance.times[-1] if utterance.times else utterance.cancelled
        yield 1000 * max(0.0, last - utterance.cancelled)


def _confirmed(utterance: Utterance) -> Iterator[float]:
    if utterance.cancelled is not None and utterance.confirmed is not None:
        yield 1000 * (utterance.confirmed - utterance.cancelled)


def _bytes_after_cancel(utterance: Utterance) -> Iterator[float]:
    if utterance.cancelled is not None:
        yield utterance.bytes_received - utterance.bytes_before_cancel


def _wasted(utterance: Utterance) -> Iterator[float]:
    if utterance.request.barge_in_s is None or utterance.failure is not None:
        return
    if utterance.cancelled is None:  # all of it had arrived before the listener interrupted
        yield max(0.0, utterance.audio_s - utterance.request.barge_in_s)
    else:
        yield utterance.audio_s - utterance.played_s(utterance.cancelled)


MEASURES: dict[str, Callable[[Utterance], Iterator[float]]] = {
    "connect_ms": _connect,
    "first_byte_ms": _first_byte,
    "audible_ms": _audible,
    "leading_silence_ms": _leading_silence,
    "underrun_ms": _underrun,
    "lateness_ms": _lateness,
    "e2e_ms": _e2e,
    "rtf": _rtf,
    "word_lag_ms": _word_lag,
    "last_frame_ms": _last_frame,
    "confirmed_ms": _confirmed,
    "bytes_after_cancel": _bytes_after_cancel,
    "wasted_s": _wasted,
}
"""Each measure by its name in documents: its values for one utterance: none, one, or one for each
word."""


def values_of(utterances: Sequence[Utterance]) -> dict[str, list[float]]:
    """The values of every measure that has any."""
    values = {
        name: [value for utterance in utterances for value in measure(utterance)]
        for name, measure in MEASURES.items()
    }
    return {name: of for name, of in values.items() if of}
