"""What does a separate engine process cost a message of audio, against a call in one process?

    python -m benchmarks.service.hop

The round trip encodes and decodes with `seam.wire` on both sides, over the kinds of sockets that
server and worker use: asyncio here, blocking there. No engine is involved.
"""

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
import zmq
import zmq.asyncio

from benchmarks.common.report import provenance, publish
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, AudioChunk
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.events import AudioStep, ContextAudio, Event

_STOP = b""


@dataclass(frozen=True, slots=True)
class Hop:
    """Median microseconds for one frame of audio to reach its listener.

    Args:
        zmq_us: encode, send to another process, decode: half a round trip.
        in_process_us: a call in one process.
    """

    zmq_us: float
    in_process_us: float


async def measure_hop(count: int = 2_000) -> Hop:
    """Measure `count` round trips of one frame, and as many calls."""
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
    """Decode messages and send them back; runs in the other process."""
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


def main(
    count: Annotated[int, typer.Option(min=1, help="Number of round trips.")] = 2_000,
) -> None:
    """Measure how long one frame of audio takes from the engine's process to the server's."""
    origin = provenance()
    hop = asyncio.run(measure_hop(count))
    print(f"{hop.zmq_us:.1f} us from process to process, {hop.in_process_us:.2f} us as a call")
    publish({**asdict(hop), "count": count, **origin})


if __name__ == "__main__":
    typer.run(main)
