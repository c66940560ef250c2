"""Simulates devices of a LiveKit session without a room: loudspeaker, microphone and screen.

They implement LiveKit's interfaces (`voice.io`), run in real time and record audio and text.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from livekit.agents import Agent, AgentSession
from livekit.agents.voice import io
from livekit.agents.voice.transcription import TranscriptSynchronizer

from livekit import rtc
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

TICK_S = 0.01
MICROPHONE_RATE_HZ = 16_000
_MICROPHONE_FRAME_S = 0.02


@dataclass
class Playback:
    """The played part of one utterance; times are `time.monotonic()`.

    Attributes:
        pcm: audio that was played.
        received_bytes: audio that arrived.
        dry_s: silence within the utterance, because no audio had arrived.
        halted_at: when it was last paused, or stopped.
        ended_at: when its last sample was played.
    """

    pcm: bytearray = field(default_factory=bytearray)
    received_bytes: int = 0
    dry_s: float = 0.0
    halted_at: float | None = None
    ended_at: float = 0.0

    @property
    def played_s(self) -> float:
        """Length of the played audio."""
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    @property
    def received_s(self) -> float:
        """Length of the audio that arrived."""
        return self.received_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


class Loudspeaker(io.AudioOutput):
    """A loudspeaker that plays in real time, can be paused, and records what it played.

    Attributes:
        playback: the current utterance, or the last one.
        is_paused: whether playback is paused.
        is_dry: whether playback waits for audio that has not arrived.
    """

    def __init__(self) -> None:
        super().__init__(
            label="Loudspeaker",
            capabilities=io.AudioOutputCapabilities(pause=True),
            sample_rate=SAMPLE_RATE_HZ,
        )
        self.playback = Playback()
        self._waiting: deque[bytes] = deque()
        self._is_capturing = False  # whether more audio of the utterance may arrive
        self._is_playing = False
        self.is_paused = False
        self.is_dry = False
        self._is_stopped = False
        self._progress = asyncio.Condition()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Queue an audio frame."""
        await super().capture_frame(frame)
        if not self._is_capturing:
            self._is_capturing = True
            self.reset()
        pcm = bytes(frame.data)
        self.playback.received_bytes += len(pcm)
        self._waiting.append(pcm)

    def flush(self) -> None:
        """Mark the utterance as complete."""
        super().flush()
        self._is_capturing = False

    def reset(self) -> None:
        """Start a new utterance."""
        self.playback, self.is_dry = Playback(), False

    def clear_buffer(self) -> None:
        """Stop the utterance and drop its queued audio."""
        if self._is_playing or self._waiting:
            if not self.is_paused:
                self.playback.halted_at = time.monotonic()
            self._waiting.clear()
            self._is_stopped = True

    def pause(self) -> None:
        """Pause playback."""
        super().pause()
        self.is_paused = True
        self.playback.halted_at = time.monotonic()

    def resume(self) -> None:
        """Resume playback."""
        super().resume()
        self.is_paused = False

    @property
    def played_s(self) -> float:
        """Length of the played audio of `playback`."""
        return self.playback.played_s

    async def play(self) -> None:
        """Play like a sound card: queued audio plays on while the event loop is busy."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if self._is_stopped:
                self._finish(interrupted=True)
            elif not self.is_paused:
                self._play_for(now - last if self._is_playing else TICK_S, now)
            last = now
            async with self._progress:
                self._progress.notify_all()

    def _play_for(self, seconds: float, now: float) -> None:
        """Play `seconds` of the queued audio, or all of it if there is less."""
        if not self._waiting:
            if self._is_playing and not self._is_capturing:
                self._finish(interrupted=False)
            self.is_dry = self._is_playing
            self.playback.dry_s += seconds if self.is_dry else 0.0
            return
        if not self._is_playing:
            self._is_playing = True
            self.on_playback_started(created_at=time.time())
        self.is_dry = False
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
        """Wait for the next tick of the loudspeaker."""
        async with self._progress:
            await self._progress.wait()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`, which is checked after every tick."""
        async with self._progress:
            await self._progress.wait_for(is_true)


class Screen(io.TextOutput):
    """Collects the transcript that the session shows."""

    def __init__(self) -> None:
        super().__init__(label="Screen", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        """Append to the shown text."""
        self.text += text

    def flush(self) -> None:
        """Do nothing: all text is shown at once."""


class Microphone(io.AudioInput):
    """A microphone in a silent room with a user; yields frames of 20 ms in real time.

    Attributes:
        said_at: when the first sample of the last speech was heard, in `time.monotonic()`; None
            before that.
    """

    def __init__(self) -> None:
        super().__init__(label="Microphone")
        self.said_at: float | None = None
        self._speech = b""
        self._tick_at = time.monotonic()

    def say(self, pcm: bytes) -> None:
        """Play `pcm` (16 kHz) as the user's speech, from now on."""
        self.said_at = self.said_at if self._speech else None
        self._speech += pcm

    async def __anext__(self) -> rtc.AudioFrame:
        self._tick_at = max(self._tick_at + _MICROPHONE_FRAME_S, time.monotonic() - 0.1)
        await asyncio.sleep(self._tick_at - time.monotonic())
        samples = round(MICROPHONE_RATE_HZ * _MICROPHONE_FRAME_S)
        size = samples * BYTES_PER_SAMPLE
        if self._speech and self.said_at is None:
            self.said_at = self._tick_at
        data, self._speech = self._speech[:size].ljust(size, b"\0"), self._speech[size:]
        return rtc.AudioFrame(data, MICROPHONE_RATE_HZ, 1, samples)


@contextlib.asynccontextmanager
async def on_devices(
    session: AgentSession[None],
    agent: Agent,
    loudspeaker: Loudspeaker,
    microphone: Microphone | None,
    screen: Screen,
) -> AsyncIterator[None]:
    """Run a session with these devices within the block; without a microphone the user is silent.

    The loudspeaker and the screen are synchronized as LiveKit does it for a room.
    """
    sync = TranscriptSynchronizer(next_in_chain_audio=loudspeaker, next_in_chain_text=screen)
    playing = asyncio.create_task(loudspeaker.play())
    session.input.audio = microphone
    session.output.audio = sync.audio_output
    session.output.transcription = sync.text_output
    try:
        await session.start(agent)
        yield
    finally:
        await session.aclose()
        await sync.aclose()
        playing.cancel()
        await asyncio.wait({playing})
