"""The clock of a listener whose audio is not the engine's: it is stretched, or has breaks.

The stretch is for a speed that the engine does not speak at; breaks come from the markup. Audio is
changed as it comes, and positions are mapped in both directions.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    MAX_MESSAGE_PCM_BYTES,
    AudioChunk,
    Pause,
    WordTimestamp,
)

if TYPE_CHECKING:
    from voiceagent_tts.audio.stretch import TimeStretch

_SILENCE = bytes(MAX_MESSAGE_PCM_BYTES)  # a piece of a break; all share it


@dataclass(frozen=True, slots=True)
class _Break:
    """Silence that the listener gets between two segments of the engine's audio."""

    char_end: int  # offset of the first character after its tag
    engine_sample: int  # its place in the engine's audio
    start_sample: int  # on the listener's clock, as `end_sample`
    end_sample: int


def _new_stretch(speed: float) -> "TimeStretch":
    from voiceagent_tts.audio.stretch import TimeStretch  # here: breaks need none

    return TimeStretch(speed)


class ChangedClock(ListenerClock):
    """The clock of a listener who gets the engine's audio stretched, or with breaks in it.

    Args:
        speed: how much faster than the engine's audio the listener's is; 1.0 where the engine
            itself speaks at the requested speed.
    """

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__()
        self._speed = speed
        self._stretch = None if speed == 1.0 else _new_stretch(speed)
        self._engine_end_sample = 0
        self._breaks: list[_Break] = []
        self._expected_breaks: deque[Pause] = deque()  # wait for the audio of the text before them

    # Audio.

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Return the engine's next audio at the listener's speed, as far as it is stretched."""
        self._engine_end_sample = chunk.end_sample
        pcm = chunk.pcm if self._stretch is None else self._stretch.push(chunk.pcm)
        return self._append(pcm)

    def expect_break(self, pause: Pause) -> None:
        """Hold the words after a break until `breaks_before` has put it into the audio."""
        self._expected_breaks.append(pause)

    def breaks_before(self, char_end: int) -> Iterator[list[AudioChunk]]:
        """Insert exact silence after the audio so far, for each break before a character.

        Yields:
            The rest of the stretched audio, if any, and the silence in pieces.
        """
        while self._expected_breaks and self._expected_breaks[0].char_end <= char_end:
            yield self._push_break()

    def _push_break(self) -> list[AudioChunk]:
        pause = self._expected_breaks.popleft()
        chunks: list[AudioChunk | None] = []
        if self._stretch is not None:
            chunks.append(self._append(self._stretch.finish()))
            self._stretch = _new_stretch(self._speed)
        start, size = self.end_sample, pause.samples * BYTES_PER_SAMPLE
        chunks += [self._append(_SILENCE[: size - at]) for at in range(0, size, len(_SILENCE))]
        self._breaks.append(_Break(pause.char_end, self._engine_end_sample, start, self.end_sample))
        return [chunk for chunk in chunks if chunk is not None]

    def drain(self, char_end: int) -> list[AudioChunk]:
        """Return the rest of the stretched audio so far, of the text before `char_end`, if any."""
        if self._stretch is None:
            return []
        # A break of no length: what follows is stretched anew, and its positions count from here.
        self._expected_breaks.appendleft(Pause(char_end, 0))
        return self._push_break()

    def to_engine_samples(self, samples: int) -> int:
        """Return the samples that the engine must generate so that `samples` can be played."""
        held_samples = 0 if self._stretch is None else self._stretch.HELD_SAMPLES
        return self.to_engine(samples, in_break=0) + held_samples

    def _append(self, pcm: bytes) -> AudioChunk | None:
        start, self.end_sample = self.end_sample, self.end_sample + len(pcm) // BYTES_PER_SAMPLE
        return AudioChunk(start, pcm) if pcm else None

    # Positions.

    @property
    def is_identity(self) -> bool:
        """Whether positions on both clocks are the same."""
        return self._stretch is None and not self._breaks

    @property
    def char_limit(self) -> int | None:
        """Start of the text whose place is not known yet, after a break; None without a break."""
        return self._expected_breaks[0].char_end if self._expected_breaks else None

    def char_at(self, listener_sample: float) -> int:
        """Return the end of the text that is heard before a position, as breaks show it; else 0."""
        reached = bisect_right(self._breaks, listener_sample, key=_start_sample)
        return self._breaks[reached - 1].char_end if reached else 0

    def place(self, timestamp: WordTimestamp) -> WordTimestamp:
        """Move a word's time from the engine's clock to the listener's."""
        char_start, end = timestamp.word.char_start, timestamp.end_sample
        return WordTimestamp(
            timestamp.word,
            round(self.to_listener(timestamp.start_sample, char_start)),
            None if end is None else round(self.to_listener(end, char_start)),
            timestamp.confidence,
        )

    def to_listener(self, engine_sample: int, char_start: int) -> float:
        """Return where the listener hears a sample of the word at `char_start`.

        A word lies after the breaks before it in the text and before the next break, even where
        its estimated time says otherwise.
        """
        following = bisect_right(self._breaks, char_start, key=_char_end)
        if not following:
            sample = engine_sample / self._speed
        else:
            last = self._breaks[following - 1]
            after_samples = max(0, engine_sample - last.engine_sample)
            sample = last.end_sample + after_samples / self._speed
        if following < len(self._breaks):
            sample = min(sample, self._breaks[following].start_sample)
        return sample

    def to_engine(self, listener_sample: float, *, in_break: int) -> int:
        """Return the engine's sample at a position; arguments as for `ListenerClock`."""
        following = bisect_right(self._breaks, listener_sample, key=_start_sample)
        if not following:
            return math.ceil(listener_sample * self._speed)
        last = self._breaks[following - 1]
        if listener_sample < last.end_sample:
            return last.engine_sample + in_break
        return last.engine_sample + math.ceil((listener_sample - last.end_sample) * self._speed)


_char_end = attrgetter("char_end")
_start_sample = attrgetter("start_sample")
