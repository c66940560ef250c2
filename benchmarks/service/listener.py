"""Simulate a listener that plays audio on arrival: when each sample is played, and underruns.

Times are seconds of any one clock. This module uses no socket and no server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock


@dataclass(frozen=True, slots=True)
class Playback:
    """Playback of an utterance.

    Args:
        starts: when the first sample of each message is played.
        lateness_s: for each message but the first, its arrival minus the time when all audio before
            it has been played; a positive value is an underrun of that length.
    """

    starts: tuple[float, ...]
    lateness_s: tuple[float, ...]

    @property
    def underruns(self) -> int:
        """How often playback reached audio that had not arrived."""
        return sum(late > 0 for late in self.lateness_s)

    @property
    def underrun_s(self) -> float:
        """Total length of the underruns."""
        return sum(late for late in self.lateness_s if late > 0)


def play(times: Sequence[float], sizes: Sequence[int]) -> Playback:
    """Play messages of `sizes` samples that arrive at `times`, without initial buffering."""
    clock = PlayoutClock()
    starts: list[float] = []
    lateness_s: list[float] = []
    for arrival, samples in zip(times, sizes, strict=True):
        if starts:
            lateness_s.append(arrival - clock.playout_end)
        starts.append(max(arrival, clock.playout_end))
        clock.send(samples, arrival)
    return Playback(tuple(starts), tuple(lateness_s))


@dataclass(frozen=True, slots=True)
class FirstSound:
    """Times of an utterance's first audio and first sound.

    Args:
        first_audio: arrival of the first message.
        audible_message: arrival of the message with the first audible sample.
        audible: when that sample is played, after all audio before it.
        leading_silence_s: silence before that sample in the audio.
    """

    first_audio: float
    audible_message: float
    audible: float
    leading_silence_s: float


def first_sound(times: Sequence[float], messages: Sequence[bytes]) -> FirstSound | None:
    """Return the times of the first sound; None if all audio is silent.

    Args:
        times: arrival of each message.
        messages: PCM16 of each message, 24 kHz.
    """
    silent_samples = leading_silence_samples(b"".join(messages))
    sizes = [len(pcm) // BYTES_PER_SAMPLE for pcm in messages]
    position = 0
    for arrival, start, samples in zip(times, play(times, sizes).starts, sizes, strict=True):
        if position + samples > silent_samples:
            audible = start + (silent_samples - position) / SAMPLE_RATE_HZ
            return FirstSound(times[0], arrival, audible, silent_samples / SAMPLE_RATE_HZ)
        position += samples
    return None
