"""What it costs that the engine is a process of its own: one audio message over ZeroMQ.

The round trip goes through `worker.messages` on both sides, over the sockets that server and
worker use: asyncio here, blocking there. The room knows no engine.
"""

import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass

import zmq
import zmq.asyncio

from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, AudioChunk
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.events import AudioStep, ContextAudio, Event

_STOP = b""


@dataclass(frozen=True, slots=True)
class Hop:
    """Median microseconds for one frame of audio to reach its listener.

    Args:
        zmq_us: encoded, sent to another process, decoded: half a round trip.
        in_process_us: by a call.
    """

    zmq_us: float
    in_process_us: float


async def measure_hop(count: int = 2_000) -> Hop:
    """Send one frame back and forth `count` times, and hand it over by a call as often."""
    pcm = bytes(FRAME_SAMPLES * BYTES_PER_SAMPLE)
    step = AudioStep((ContextAudio(1, AudioChunk(0, pcm)),))
    round_trips_s = await _round_trips_s(step, count)
    calls_s = [_call_s(step) for _ in range(count)]
    return Hop(
        zmq_us=statistics.median(round_trips_s) / 2 * 1e6,
        in_process_us=statistics.median(calls_s) * 1e6,
    )


async def _round_trips_s(step: AudioStep, count: int) -> list[float]:
    with (
        tempfile.TemporaryDirectory(prefix="voiceagent-") as directory,
        zmq.asyncio.Context() as context,
        context.socket(zmq.PAIR) as socket,
    ):
        endpoint = f"ipc://{directory}/hop"
        socket.bind(endpoint)
        process = multiprocessing.get_context("spawn").Process(target=echo, args=(endpoint,))
        process.start()
        await socket.send(b"warm up, and wait until the other end is there")
        await socket.recv_multipart()
        round_trips_s: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            await socket.send_multipart(wire.encode(step))
            wire.decode(await socket.recv_multipart())
            round_trips_s.append(time.perf_counter() - began)
        await socket.send(_STOP)
        process.join()
        return round_trips_s


def echo(endpoint: str) -> None:
    """The other process: decode what comes, and send it back."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(endpoint)
        socket.send_multipart(socket.recv_multipart())
        while (parts := socket.recv_multipart()) != [_STOP]:
            socket.send_multipart(wire.encode(wire.decode(parts)))


def _call_s(step: AudioStep) -> float:
    heard: list[Event] = []
    began = time.perf_counter()
    heard.append(step)
    return time.perf_counter() - began
