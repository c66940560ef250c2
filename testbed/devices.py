"""The devices of a LiveKit session without a room: a loudspeaker, a microphone, a screen.

They are of LiveKit's own kinds (`voice.io`), work in real time, and keep what went through them.
This module knows no agent, no words and no server.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from livekit.agents.voice import io

from livekit import rtc
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

TICK_S = 0.01
MICROPHONE_RATE_HZ = 16_000
_MICROPHONE_FRAME_S = 0.02


@dataclass
class Playback:
    """What a loudspeaker played of one utterance; times are `time.monotonic()`.

    Attributes:
        pcm: what was heard.
        received_bytes: how much there was to hear.
        dry_s: silence within it, because there was nothing to play.
        halted_at: when it was paused last, or stopped.
        stopped_at: when it was stopped, on `time.time()`.
        ended_at: when its last sample was heard.
    """

    pcm: bytearray = field(default_factory=bytearray)
    received_bytes: int = 0
    dry_s: float = 0.0
    halted_at: float | None = None
    stopped_at: float = 0.0
    ended_at: float = 0.0

    @property
    def played_s(self) -> float:
        """Seconds of sound that were heard."""
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    @property
    def received_s(self) -> float:
        """Seconds of sound that there were."""
        return self.received_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


class Speaker(io.AudioOutput):
    """Plays in real time, can be paused, and knows what it played.

    Attributes:
        playback: the utterance that is played, or was last.
    """

    def __init__(self) -> None:
        super().__init__(
            label="Speaker",
            capabilities=io.AudioOutputCapabilities(pause=True),
            sample_rate=SAMPLE_RATE_HZ,
        )
        self.playback = Playback()
        self._waiting: deque[bytes] = deque()
        self._is_capturing = False
        self._is_playing = False
        self._is_paused = False
        self._is_dry = False
        self._is_stopped = False
        self._progress = asyncio.Condition()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Take a piece of sound, to be played behind what is there."""
        await super().capture_frame(frame)
        if not self._is_capturing:
            self._is_capturing = True
            self.forget()
        pcm = bytes(frame.data)
        self.playback.received_bytes += len(pcm)
        self._waiting.append(pcm)

    def flush(self) -> None:
        """The utterance is complete."""
        super().flush()
        self._is_capturing = False

    def forget(self) -> None:
        """Another utterance is to come."""
        self.playback, self._is_dry = Playback(), False

    def clear_buffer(self) -> None:
        """Stop the utterance."""
        if self._is_playing or self._waiting:
            if not self._is_paused:
                self.playback.halted_at = time.monotonic()
            self._waiting.clear()
            self._is_stopped = True
            self.playback.stopped_at = time.time()

    def pause(self) -> None:
        """Hold the sound."""
        super().pause()
        self._is_paused = True
        self.playback.halted_at = time.monotonic()

    def resume(self) -> None:
        """Go on."""
        super().resume()
        self._is_paused = False

    @property
    def is_paused(self) -> bool:
        """Whether the sound is held."""
        return self._is_paused

    @property
    def is_dry(self) -> bool:
        """Whether more sound is wanted than there is."""
        return self._is_dry

    @property
    def played(self) -> bytes:
        """What was heard of the last utterance."""
        return bytes(self.playback.pcm)

    @property
    def played_s(self) -> float:
        """Seconds of it."""
        return self.playback.played_s

    async def play(self) -> None:
        """Be a sound card: what it holds plays on while the program is busy elsewhere."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if self._is_stopped:
                self._finish(interrupted=True)
            elif not self._is_paused:
                self._take(now - last if self._is_playing else TICK_S, now)
            last = now
            async with self._progress:
                self._progress.notify_all()

    def _take(self, seconds: float, now: float) -> None:
        """Play so much, or what there is of it."""
        if not self._waiting:
            if self._is_playing and not self._is_capturing:
                self._finish(interrupted=False)
            self._is_dry = self._is_playing
            self.playback.dry_s += seconds if self._is_dry else 0.0
            return
        if not self._is_playing:
            self._is_playing = True
            self.on_playback_started(created_at=time.time())
        self._is_dry = False
        count = round(seconds * SAMPLE_RATE_HZ) * BYTES_PER_SAMPLE
        while count > 0 and self._waiting:
            data = self._waiting.popleft()
            self.playback.pcm += data[:count]
            if len(data) > count:
                self._waiting.appendleft(data[count:])
            count -= len(data)
        self.playback.ended_at = now

    def _finish(self, *, interrupted: bool) -> None:
        self._is_playing = self._is_stopped = False
        self.on_playback_finished(playback_position=self.played_s, interrupted=interrupted)

    async def tick(self) -> None:
        """Wait a moment."""
        async with self._progress:
            await self._progress.wait()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`, which is asked after every tick."""
        async with self._progress:
            await self._progress.wait_for(is_true)


class Screen(io.TextOutput):
    """Where the session shows the transcript."""

    def __init__(self) -> None:
        super().__init__(label="Screen", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        """Show more."""
        self.text += text

    def flush(self) -> None:
        """Nothing waits here."""


class Microphone(io.AudioInput):
    """A silent room in which somebody can speak; gives 20 ms at a time, in real time."""

    def __init__(self) -> None:
        super().__init__(label="Microphone")
        self._speech = b""
        self._tick_at = time.monotonic()

    def say(self, pcm: bytes) -> None:
        """Speak 16 kHz PCM from now on."""
        self._speech += pcm

    async def __anext__(self) -> rtc.AudioFrame:
        """The next 20 ms."""
        self._tick_at = max(self._tick_at + _MICROPHONE_FRAME_S, time.monotonic() - 0.1)
        await asyncio.sleep(self._tick_at - time.monotonic())
        samples = round(MICROPHONE_RATE_HZ * _MICROPHONE_FRAME_S)
        size = samples * BYTES_PER_SAMPLE
        data, self._speech = self._speech[:size].ljust(size, b"\0"), self._speech[size:]
        return rtc.AudioFrame(data, MICROPHONE_RATE_HZ, 1, samples)
