"""Call a Pipecat bot over WebRTC: a microphone that plays audio, and a recorded loudspeaker."""

import asyncio
import contextlib
import fractions
import time
from collections.abc import AsyncIterator, Callable

import aiohttp
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame
from av.audio.resampler import AudioResampler

from testbed.waiting import PATIENCE_S

RATE_HZ = 16_000
_FRAME_SAMPLES = RATE_HZ // 50
_AUDIBLE = 600
"""Magnitude from which a received sample is audible."""


class Microphone(MediaStreamTrack):
    """A microphone in a silent room with a user.

    Attributes:
        spoke_at_s: when the first audible sample of the last `say` was sent, `time.monotonic()`.
    """

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.spoke_at_s = 0.0
        self._to_say = b""
        self._sent_samples = 0
        self._started_at_s = 0.0
        self._is_new = False

    def say(self, pcm: bytes) -> None:
        """Speak `pcm`, PCM16 at `RATE_HZ`, from now on."""
        self._to_say += pcm
        self._is_new = True

    async def recv(self) -> AudioFrame:
        """The next 20 ms."""
        self._started_at_s = self._started_at_s or time.monotonic()
        await asyncio.sleep(self._started_at_s + self._sent_samples / RATE_HZ - time.monotonic())
        size = 2 * _FRAME_SAMPLES
        data, self._to_say = self._to_say[:size].ljust(size, b"\0"), self._to_say[size:]
        samples = np.frombuffer(data, "<i2")
        if self._is_new and np.abs(samples.astype(np.int32)).max() > _AUDIBLE:
            self.spoke_at_s, self._is_new = time.monotonic(), False
        frame = AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = RATE_HZ, self._sent_samples
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        self._sent_samples += _FRAME_SAMPLES
        return frame


class WebRTCCaller:
    """A connected caller.

    Attributes:
        microphone: what the bot hears.
        blocks: (arrival in `time.monotonic()`, largest magnitude) of each received frame.
    """

    def __init__(self) -> None:
        self.microphone = Microphone()
        self.blocks: list[tuple[float, int]] = []
        self._arrived = asyncio.Condition()

    async def receive(self, track: MediaStreamTrack) -> None:
        resampler = AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        while True:
            frame = await track.recv()
            assert isinstance(frame, AudioFrame)
            for each in resampler.resample(frame):
                peak = int(np.abs(each.to_ndarray().astype(np.int32)).max(initial=0))
                self.blocks.append((time.monotonic(), peak))
            async with self._arrived:
                self._arrived.notify_all()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`, which is checked after every received frame."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(is_true)

    async def wait_until_audible(self, after_s: float) -> float:
        """Wait until the bot is heard after `after_s`; returns when."""
        await self.until(lambda: bool(self._audible(after_s, time.monotonic())))
        return self._audible(after_s, time.monotonic())[0]

    def silent_from(self, after_s: float, until_s: float) -> float:
        """When the bot was last heard between the two times."""
        return self._audible(after_s, until_s)[-1]

    def _audible(self, after_s: float, until_s: float) -> list[float]:
        return [at for at, peak in self.blocks if after_s < at < until_s and peak > _AUDIBLE]


@contextlib.asynccontextmanager
async def calling_bot(url: str) -> AsyncIterator[WebRTCCaller]:
    """Call the bot that Pipecat's runner serves at `url`; hangs up afterwards."""
    caller, connection = WebRTCCaller(), RTCPeerConnection()
    receiving: list[asyncio.Task[None]] = []

    @connection.on("track")
    def on_track(track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            receiving.append(asyncio.create_task(caller.receive(track)))

    connection.createDataChannel("pipecat")
    connection.addTransceiver(caller.microphone, "sendrecv")
    await connection.setLocalDescription(await connection.createOffer())
    offer = connection.localDescription
    async with aiohttp.ClientSession() as http:
        data = {"sdp": offer.sdp, "type": offer.type}
        async with http.post(f"{url}/api/offer", json=data) as response:
            answer = await response.json()
    await connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
    try:
        yield caller
    finally:
        await connection.close()
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
