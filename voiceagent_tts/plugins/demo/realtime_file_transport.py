"""A Pipecat transport without a sound card: it records both sides in real time.

The output plays at the speed of a loudspeaker and records what it played, sample by sample, on the
clock of the conversation. The input is a microphone in a silent room; `say` plays a user's audio
into it. This module knows no agents, no words and no text. It uses these private names of Pipecat's
output transport: `_media_senders` and their `_audio_queue`.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSStartedFrame,
)
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import BaseTransport, TransportParams

SPEAKER_RATE_HZ = 24_000
MICROPHONE_RATE_HZ = 16_000  # the sample rate of voice activity detection
_ARRIVAL_S = 0.1
"""Longest time that audio which the service has sent takes to arrive at the loudspeaker."""
_TICK_S = 0.02
_TICK_SAMPLES = round(MICROPHONE_RATE_HZ * _TICK_S)


@dataclass
class Utterance:
    """The played audio of one turn of the agent.

    Attributes:
        chunks: (position in the recording, length) of each audio chunk, in samples and in order.
        pcm: the chunks joined, PCM16.
    """

    context_id: str
    chunks: list[tuple[int, int]] = field(default_factory=list)
    pcm: bytearray = field(default_factory=bytearray)

    @property
    def played_samples(self) -> int:
        """Length of the turn's played audio."""
        return sum(samples for _, samples in self.chunks)

    def position_of(self, sample: int) -> int | None:
        """Position of the turn's `sample` in the recording; None if it was not played."""
        for position, samples in self.chunks:
            if sample < samples:
                return position + sample
            sample -= samples
        return None


class RealtimeFileTransport(BaseTransport):
    """A recorded loudspeaker and microphone that share one clock.

    Attributes:
        utterances: played audio of the agent's turns.
        latest_s: the largest delay of audio on its way to the loudspeaker; a busy machine delays
            both sides by as much.
    """

    def __init__(self) -> None:
        super().__init__()
        self.utterances: list[Utterance] = []
        self.latest_s = 0.0
        self._started_at = 0.0
        self._played: list[tuple[int, bytes]] = []  # (position, PCM)
        self._said: list[tuple[int, bytes]] = []  # (position, PCM), microphone's rate
        self._has_progress = asyncio.Event()
        params = TransportParams(
            audio_in_enabled=True,
            audio_in_sample_rate=MICROPHONE_RATE_HZ,
            audio_out_enabled=True,
            audio_out_sample_rate=SPEAKER_RATE_HZ,
            audio_out_10ms_chunks=4,  # as real transports write it
            audio_out_end_silence_secs=0,
        )
        self._microphone = _Microphone(self, params)
        self._speaker = _Speaker(self, params)

    def input(self) -> "_Microphone":
        """The microphone."""
        return self._microphone

    def output(self) -> "_Speaker":
        """The loudspeaker."""
        return self._speaker

    def start_clock(self) -> None:
        """Start the recording; the first of both sides to start calls this."""
        self._started_at = self._started_at or time.monotonic()

    @property
    def now_s(self) -> float:
        """Seconds since the recording started."""
        return time.monotonic() - self._started_at

    def say(self, pcm: bytes) -> None:
        """Play `pcm` (PCM16 at `MICROPHONE_RATE_HZ`) into the microphone, from now on."""
        self._microphone.pending += pcm

    async def wait_until_played(self, context_id: str, samples: int) -> Utterance:
        """Wait until `samples` of the turn `context_id` were played.

        Does not return while the loudspeaker catches up on a delay of this program: Pipecat has
        released the words of that time already.
        """
        while True:
            if not self._speaker.is_catching_up:
                for utterance in self.utterances:
                    if utterance.context_id == context_id and utterance.played_samples >= samples:
                        return utterance
            self._has_progress.clear()
            # Python 3.11's `wait_for` may swallow the cancel of a caller that has waited enough.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ARRIVAL_S):
                    await self._has_progress.wait()

    @property
    def said(self) -> list[tuple[int, int]]:
        """(position in the recording, length) of the user's audio, at `SPEAKER_RATE_HZ`."""
        scale = SPEAKER_RATE_HZ / MICROPHONE_RATE_HZ
        return [
            (round(position * scale), round(len(pcm) // 2 * scale)) for position, pcm in self._said
        ]

    def record_played(self, at_s: float, pcm: bytes) -> None:
        """Record `pcm`, which started to play at `at_s`."""
        position = round(at_s * SPEAKER_RATE_HZ)
        self._played.append((position, pcm))
        if self.utterances:
            self.utterances[-1].chunks.append((position, len(pcm) // 2))
            self.utterances[-1].pcm += pcm
        self._has_progress.set()

    def record_said(self, tick: int, pcm: bytes) -> None:
        """Record `pcm`, which the microphone received in its `tick`."""
        self._said.append((tick * _TICK_SAMPLES, pcm))

    def tracks(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
        """The recording at `SPEAKER_RATE_HZ`: (agent, user)."""
        agent = _track(self._played)
        user = _track(self._said)
        user = soxr.resample(user, MICROPHONE_RATE_HZ, SPEAKER_RATE_HZ).astype(np.int16)
        length = max(len(agent), len(user))
        return np.pad(agent, (0, length - len(agent))), np.pad(user, (0, length - len(user)))

    def write(self, path: Path) -> None:
        """Write the recording as a stereo WAV: the agent on the left, the user on the right."""
        soundfile.write(path, np.stack(self.tracks(), axis=1), SPEAKER_RATE_HZ, subtype="PCM_16")


class _Microphone(BaseInputTransport):
    def __init__(self, transport: RealtimeFileTransport, params: TransportParams) -> None:
        super().__init__(params)
        self.pending = b""
        self._transport = transport
        self._listening: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._transport.start_clock()
        await self.set_transport_ready(frame)
        self._listening = self.create_task(self._listen())

    async def stop(self, frame: EndFrame) -> None:
        await self._stop_listening()
        await super().stop(frame)

    async def cancel(self, frame: CancelFrame) -> None:
        await self._stop_listening()
        await super().cancel(frame)

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            await self.cancel_task(self._listening)
            self._listening = None

    async def _listen(self) -> None:
        tick = 0
        while True:
            said, self.pending = (
                self.pending[: 2 * _TICK_SAMPLES],
                self.pending[2 * _TICK_SAMPLES :],
            )
            if said:
                self._transport.record_said(tick, said)
            pcm = said.ljust(2 * _TICK_SAMPLES, b"\0")
            await self.push_audio_frame(InputAudioRawFrame(pcm, MICROPHONE_RATE_HZ, 1))
            tick += 1
            await asyncio.sleep(max(0.0, tick * _TICK_S - self._transport.now_s))


class _Speaker(BaseOutputTransport):
    def __init__(self, transport: RealtimeFileTransport, params: TransportParams) -> None:
        super().__init__(params)
        self._transport = transport
        self._silent_from_s = 0.0  # end of the audio so far
        self._free_at_s = 0.0  # since when it can play more audio
        self._is_dry = True  # whether no more audio had arrived by then
        self._is_new = True  # whether the next audio starts a turn

    @property
    def is_catching_up(self) -> bool:
        """Whether audio is played later than its time."""
        now_s = self._transport.now_s
        is_behind = now_s - self._silent_from_s > _TICK_S
        return is_behind and (self._has_audio or now_s - self._free_at_s <= _ARRIVAL_S)

    @property
    def _has_audio(self) -> bool:
        """Whether audio waits to be played."""
        sender = self._media_senders.get(None)  # there is none before the start
        return sender is not None and sender._audio_queue.has_frame(OutputAudioRawFrame)

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._transport.start_clock()
        await self.set_transport_ready(frame)

    async def write_transport_frame(self, frame: Frame) -> None:
        if isinstance(frame, TTSStartedFrame) and frame.context_id is not None:
            self._transport.utterances.append(Utterance(frame.context_id))
            self._is_new = True

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        now_s = self._transport.now_s
        if not self._is_new:
            self._transport.latest_s = max(self._transport.latest_s, now_s - self._silent_from_s)
        # Audio that waits while this program is held up leaves no gap on a real card.
        has_gap = self._is_new or (self._is_dry and now_s - self._silent_from_s > _TICK_S)
        start_s = max(now_s, self._silent_from_s) if has_gap else self._silent_from_s
        self._is_new = False
        self._transport.record_played(start_s, frame.audio)
        self._silent_from_s = start_s + len(frame.audio) / 2 / SPEAKER_RATE_HZ
        await asyncio.sleep(max(0.0, self._silent_from_s - self._transport.now_s))
        self._free_at_s, self._is_dry = self._transport.now_s, not self._has_audio
        return True


def _track(pieces: list[tuple[int, bytes]]) -> npt.NDArray[np.int16]:
    """The pieces at their positions, with silence between them."""
    length = max((position + len(pcm) // 2 for position, pcm in pieces), default=0)
    track = np.zeros(length, np.int16)
    for position, pcm in pieces:
        track[position : position + len(pcm) // 2] = np.frombuffer(pcm, "<i2")
    return track
