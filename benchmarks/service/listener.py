"""A listener who plays audio the moment it comes: when each sample is heard, and what comes late.

Times are seconds of one clock, whichever the caller reads. The room knows no socket and no server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock


@dataclass(frozen=True, slots=True)
class Playback:
    """How an utterance played.

    Args:
        starts: when the first sample of each message is heard.
        lateness_s: for each message but the first, arrival minus the moment when all before it has
            been heard; above zero is an underrun of that length.
    """

    starts: tuple[float, ...]
    lateness_s: tuple[float, ...]

    @property
    def underruns(self) -> int:
        """How often playback reached audio that had not come."""
        return sum(late > 0 for late in self.lateness_s)

    @property
    def underrun_s(self) -> float:
        """Silence heard in these underruns."""
        return sum(late for late in self.lateness_s if late > 0)


def play(times: Sequence[float], sizes: Sequence[int]) -> Playback:
    """Play messages of `sizes` samples that came at `times`, the first one at once."""
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
    """When an utterance is first heard.

    Args:
        first_audio: the first message came.
        audible_message: the message that holds the first audible sample came.
        audible: that sample is heard: everything before it has been played by then.
        leading_silence_s: length of the silence before it, as it is in the audio.
    """

    first_audio: float
    audible_message: float
    audible: float
    leading_silence_s: float


def first_sound(times: Sequence[float], messages: Sequence[bytes]) -> FirstSound | None:
    """When the listener first hears something; None where there is no sound.

    Args:
        times: when each message came.
        messages: their PCM16 at 24 kHz.
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
