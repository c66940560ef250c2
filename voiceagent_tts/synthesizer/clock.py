"""The listener's clock: where the engine's audio and words are heard, and how much of it is wanted.

The engine counts the samples that it generates. The listener hears them stretched, if the engine
does not speak at the requested speed, and with the silence of breaks between them. `ListenerClock`
turns the one into the other: audio as it comes, and positions in both directions. `Pacer` says how
far the audio may run ahead of playback.
"""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Pause,
    PlayoutClock,
    WordTimestamp,
)
from voiceagent_tts.synthesizer.options import Limits

if TYPE_CHECKING:
    from voiceagent_tts.audio.stretch import TimeStretch

_MIN_LEAD_S = 0.2  # minimum lead: a shorter one is used up by timers and the delay of the resampler
_LONGEST_STEP_S = 0.5
_SILENCE = bytes(MAX_MESSAGE_PCM_BYTES)  # a piece of a break; all share it


@dataclass(frozen=True, slots=True)
class _Break:
    """Silence that the listener gets between two segments of the engine's audio."""

    char_end: int  # offset of the first character after its tag
    engine_sample: int  # its place in the engine's audio
    start_sample: int  # on the listener's clock, as `end_sample`
    end_sample: int


def _new_stretch(speed: float) -> "TimeStretch":
    from voiceagent_tts.audio.stretch import TimeStretch  # here: most contexts need none

    return TimeStretch(speed)


class ListenerClock:
    """Maps one context's engine audio and word times onto the listener's clock.

    Args:
        speed: how much faster than the engine's audio the listener's is; 1.0 where the engine
            itself speaks at the requested speed.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.end_sample = 0  # of the audio so far, on the listener's clock
        self._speed = speed
        self._stretch = None if speed == 1.0 else _new_stretch(speed)
        self._engine_end_sample = 0
        self._breaks: list[_Break] = []
        self._expected_breaks: deque[Pause] = deque()  # wait for the audio of the text before them

    # Audio.

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Return the engine's next audio at the listener's speed, as far as it is stretched."""
        self._engine_end_sample = end_sample = chunk.end_sample
        if self._stretch is None and not self._breaks:
            self.end_sample = end_sample
            return chunk
        pcm = chunk.pcm if self._stretch is None else self._stretch.push(chunk.pcm)
        return self._append(pcm)

    def expect_break(self, pause: Pause) -> None:
        """Keep back the words behind a break until `push_break` has put it into the audio."""
        self._expected_breaks.append(pause)

    def has_break_before(self, char_end: int) -> bool:
        """Whether the next expected break is in the text before a character."""
        return bool(self._expected_breaks) and self._expected_breaks[0].char_end <= char_end

    def push_break(self) -> list[AudioChunk]:
        """Insert exact silence after the audio so far, which is that of the text before the break.

        Returns:
            The rest of the stretched audio, if any, and the silence in pieces.
        """
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
        return self.push_break()

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
        """Where text begins whose place is not known yet, behind a break; None without."""
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
        """Where the listener hears a sample of the word at `char_start`.

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
        """The engine's sample that the listener hears at `listener_sample`, rounded up.

        Args:
            listener_sample: on the listener's clock.
            in_break: what is added to a break's place in the engine's audio for a sample in it.
        """
        following = bisect_right(self._breaks, listener_sample, key=_start_sample)
        if not following:
            return math.ceil(listener_sample * self._speed)
        last = self._breaks[following - 1]
        if listener_sample < last.end_sample:
            return last.engine_sample + in_break
        return last.engine_sample + math.ceil((listener_sample - last.end_sample) * self._speed)


_char_end = attrgetter("char_end")
_start_sample = attrgetter("start_sample")


class Pacer:
    """Computes how far a context's audio may run ahead of playback.

    Credit grows in steps that are large enough to be worth a message.

    Args:
        max_lead_s: longest lead of generation over playback; None for the server's limit, 0 for no
            pacing.
        limits: the server's limits; the one of unsent audio also holds without pacing.
    """

    def __init__(self, clock: PlayoutClock, max_lead_s: float | None, limits: Limits) -> None:
        self.granted_samples = 0  # that the listener may get so far
        self.due_at: float | None = None
        """When playback allows more without other events; None if only audio sent does."""
        self._clock = clock
        self._max_unsent_s = limits.max_unsent_s
        self._is_paced = max_lead_s != 0
        self._lead_s = max(limits.max_lead_s if max_lead_s is None else max_lead_s, _MIN_LEAD_S)
        self._step_s = min(_LONGEST_STEP_S, self._lead_s / 4) if self._is_paced else _LONGEST_STEP_S

    def more_samples(self, now: float) -> int | None:
        """Return how many samples the listener may get in all; None if that is no step more."""
        if self.due_at is not None and self.due_at <= now:
            self.due_at = None
        if self._is_paced and self.due_at is None and self._clock.lead_s(now) > 0:
            self.due_at = now + self._step_s
        wanted = self._wanted_samples(now)
        if wanted - self.granted_samples < self._step_s * SAMPLE_RATE_HZ:
            return None
        self.granted_samples = wanted
        return wanted

    def _wanted_samples(self, now: float) -> int:
        by_memory = self._clock.sent_samples + round(self._max_unsent_s * SAMPLE_RATE_HZ)
        if not self._is_paced:
            return by_memory
        by_playback = self._clock.played_samples(now) + round(self._lead_s * SAMPLE_RATE_HZ)
        return min(by_memory, by_playback)
