"""Fifteen pains that users of other TTS servers report: each has a test on real processes.

`pytest -k test_pain` runs them all. Some are proven beside other tests: 1, 2 and 10 in
`test_resilience.py`, 2 also in `test_crowd.py`, 6, 9 and 13 in `tests/server`, 8 in
`test_chunking.py`, 11 in `tests/engine/test_gpu_memory.py`, 12 in `test_soak.py`, 15 in
`test_invariants.py`.
"""

import asyncio
from pathlib import Path
from typing import Unpack

import httpx
import numpy as np
import pytest

from testbed.servers import StartServer, worker_of
from testbed.waiting import undisturbed, until
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.client_connection import ClientAudio, OpenOptions
from voiceagent_tts.server.serve import RunningServer

RANDOM_MODEL = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"
REPEATABLE = "ash"
"""A voice whose audio is the same each time; the breath of most others is random noise."""
SENTENCE = "The quick brown fox jumps over the lazy dog. "


async def started(wire: Wire, text: str, **options: Unpack[OpenOptions]) -> ReceivedContext:
    """Open a context with its whole text."""
    received = await wire.open(**{"language": "en", **options})
    await wire.text(received, text)
    await wire.end(received)
    return received


async def underrun_s(url: str) -> float:
    """Speak two sentences and return the seconds without audio that their listener would hear."""
    async with Wire.connected(url) as wire:
        received = await wire.finish(await started(wire, SENTENCE * 2, max_lead_s=1.0))
        assert received.done.reason == "complete"
        return received.underrun_s


async def test_pain_03_eight_listeners_hear_no_gap(start_server: StartServer) -> None:
    """Eight listeners of an engine that is busy all the time hear no gap."""
    server = await start_server(throttle={"rtf": 0.5})

    async def listen() -> list[float]:
        return await asyncio.gather(*(underrun_s(server.websocket_url) for _ in range(8)))

    underruns_s = await undisturbed(listen, holds=lambda underruns_s: max(underruns_s) <= 0.1)
    assert max(underruns_s) <= 0.1


@pytest.mark.thorough
async def test_pain_03_above_capacity_a_reply_is_refused(start_server: StartServer) -> None:
    """With every row in use the next reply gets a refusal with a time to retry, not a silence."""
    server = await start_server(
        engine="qwen3", models=(str(RANDOM_MODEL),), rows=2, threads=1, aligner="off"
    )
    worker = worker_of(server, str(RANDOM_MODEL))
    await until(lambda: worker.rows_used == 0, "the start-up probe has gone")
    async with Wire.connected(server.websocket_url) as wire:
        replies = [await started(wire, SENTENCE, voice="vivian") for _ in range(3)]
        refused = await wire.finish(replies[-1])
        assert refused.error is not None
        assert refused.error.code == ErrorCode.OVERLOADED
        assert refused.error.retryable and refused.error.retry_after_ms is not None
        for reply in replies[:2]:
            await wire.until(ClientAudio, reply)


async def test_pain_04_the_first_audio_does_not_wait_in_a_queue(server: RunningServer) -> None:
    """Of eight replies that begin together all are heard before the first of them is complete."""
    async with Wire.connected(server.websocket_url) as wire:
        replies = [await started(wire, SENTENCE * 3, max_lead_s=0.5) for _ in range(8)]
        while not all(reply.pcm for reply in replies):
            await wire.receive()
            assert not any(reply.record.done for reply in replies)
        for reply in replies:
            await wire.cancel(reply)


@pytest.mark.thorough
async def test_pain_05_a_model_that_loses_its_text_is_stopped(start_server: StartServer) -> None:
    """A model that never ends stops within the time of a short text, and the next one is spoken.

    Its weights are random, so that it speaks noise; published ones do so for one text in hundreds.
    """
    server = await start_server(
        engine="qwen3", models=(str(RANDOM_MODEL),), rows=4, threads=1, aligner="off"
    )
    most_ms = 62 * FRAME_SAMPLES // 24  # of one id: the frames of tests/engine/test_guards.py
    async with Wire.connected(server.websocket_url) as wire:
        lost = 0
        for text in ("7", "OK", "1"):
            spoken = await wire.say(text, voice="vivian", language="zh", seed=1)
            assert 0 < spoken.done.audio_ms <= most_ms, text
            if spoken.error is not None:
                assert (spoken.error.code, spoken.done.reason) == (ErrorCode.TEXT_LOST, "error")
                lost += 1
        assert lost, "noise that finds its end by chance is all there was"


async def test_pain_07_audio_is_the_same_however_it_is_cut(server: RunningServer) -> None:
    """No header, trailer or click lies between messages: all endpoints send one signal."""
    fields = {"input": SENTENCE * 2, "voice": REPEATABLE, "language": "en"}
    async with Wire.connected(server.websocket_url) as wire:
        whole = bytes((await wire.say(SENTENCE * 2, voice=REPEATABLE, language="en")).pcm)
        paced = await started(wire, SENTENCE * 2, voice=REPEATABLE, max_lead_s=60.0)
        await wire.finish(paced)
        assert bytes(paced.pcm) == whole
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        for form, header_bytes in (("pcm", 0), ("wav", 44)):
            answer = await http.post("/v1/audio/speech", json={**fields, "response_format": form})
            assert answer.content[header_bytes:] == whole, form


def timbre(pcm: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Level of 64 bands of a recording, in decibels: [64]."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    power = np.abs(np.fft.rfft(samples, 65_536)) ** 2
    return 10 * np.log10([band.mean() + 1 for band in np.array_split(power[:16_384], 64)])


async def test_pain_09_fifty_voices_at_once_are_fifty_voices(server: RunningServer) -> None:
    """Each voice sounds among fifty as it does alone, and not as the others do."""
    names = server.state.synthesizer.voices.names()[:50]

    async def say(name: str) -> bytes:
        async with Wire.connected(server.websocket_url) as wire:
            return bytes((await wire.say("Yes.", voice=name, language="en")).pcm)

    alone = [timbre(await say(name)) for name in names]
    for index, pcm in enumerate(await asyncio.gather(*map(say, names))):
        away_db = [float(np.abs(timbre(pcm) - each).mean()) for each in alone]
        assert away_db[index] < 0.5 * np.median(away_db), names[index]


async def test_pain_14_one_long_request_blocks_nobody(start_server: StartServer) -> None:
    """While 4,096 characters are spoken, health is answered and three other replies complete."""
    server = await start_server(throttle={"rtf": 0.05})
    long_text = (SENTENCE * 100)[:4096]
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        body = {"input": long_text, "response_format": "pcm"}
        async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            async with Wire.connected(server.websocket_url) as wire:
                replies = [await started(wire, SENTENCE, max_lead_s=0) for _ in range(3)]
                for reply in replies:
                    assert (await http.get("/health/ready")).status_code == 200
                    await wire.finish(reply)
                    assert reply.done.reason == "complete"
            assert server.state.synthesizer.contexts_active == 1, "the long one is still spoken"
