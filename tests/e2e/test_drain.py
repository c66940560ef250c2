"""SIGTERM under load: contexts in progress finish, and nothing is left behind."""

import asyncio
import contextlib

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from testbed.server_process import ServerProcess, StartProcess
from testbed.waiting import PATIENCE_S
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import DrainingMessage

SENTENCE = "The quick brown fox jumps over the lazy dog, again and again."


async def _close_code(wire: Wire) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await wire.receive()
    return wire.websocket.close_code


async def _exit_status(server: ServerProcess) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.to_thread(server.process.wait)


async def test_contexts_finish_after_sigterm(start_process: StartProcess) -> None:
    """After SIGTERM contexts in progress finish, new ones are refused, and the status is 0."""
    server = start_process()
    workers = server.worker_processes()
    assert workers
    async with contextlib.AsyncExitStack() as stack:
        sockets = [Wire.connected(server.websocket_url) for _ in range(4)]
        idle, *wires = [await stack.enter_async_context(socket) for socket in sockets]
        spoken = [
            await wire.start(SENTENCE, max_lead_s=0.3, language="en")
            for wire in wires
            for _ in range(2)
        ]
        late, held = idle.expect("late"), await idle.open()
        await idle.text(held, "Hello.")  # an open context keeps the server alive
        server.terminate()
        for wire in (*wires, idle):
            assert (await wire.until(DrainingMessage)).deadline_ms == 30_000
        await _check_refusals(server, idle, late)
        await idle.end(held)
        for wire in (*wires, idle):
            assert await _close_code(wire) == 1001
    assert held.done.reason == "complete"
    for received in spoken:
        assert received.done.reason == "complete"
        assert received.words[-1].word.text == "again."
    assert await _exit_status(server) == 0
    assert not any(worker.is_running() for worker in workers)


async def _check_refusals(server: ServerProcess, idle: Wire, late: ReceivedContext) -> None:
    """Check that every endpoint refuses new contexts, and that readiness fails."""
    await idle.send_raw({"type": "text", "context_id": "late", "text": "Hello."})
    await idle.finish(late)
    assert late.error is not None
    assert late.error.code == ErrorCode.DRAINING
    with pytest.raises(InvalidStatus) as refused:
        await Wire.connect(server.websocket_url)
    assert refused.value.response.status_code == 503
    async with httpx.AsyncClient(base_url=server.url) as http:
        response = await http.post("/v1/audio/speech", json={"input": "Hello."})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
        assert (await http.get("/health/ready")).status_code == 503
        assert (await http.get("/health/live")).status_code == 200


async def test_a_body_is_finished_too(start_process: StartProcess) -> None:
    """An HTTP response in progress at SIGTERM arrives complete."""
    server = start_process()
    body = {"input": SENTENCE * 60, "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        whole = (await http.post("/v1/audio/speech", json=body)).content
        async with http.stream("POST", "/v1/audio/speech", json=body) as response:
            chunks = response.aiter_bytes()
            received = len(await anext(chunks))
            server.terminate()
            async for chunk in chunks:
                received += len(chunk)
    # Two renderings of one text differ by a few samples per word.
    assert received == pytest.approx(len(whole), rel=0.01)
    assert await _exit_status(server) == 0


async def test_a_second_sigterm_ends_at_once(start_process: StartProcess) -> None:
    """A second SIGTERM ends the server at once."""
    server = start_process(drain_s="600")
    workers = server.worker_processes()
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.start(SENTENCE * 30, max_lead_s=0.3, language="en")
        server.terminate()
        await wire.until(DrainingMessage)
        server.terminate()
        assert await _close_code(wire) == 1001
        assert received.record.done is None
    assert await _exit_status(server) == 0
    assert not any(worker.is_running() for worker in workers)


async def test_the_deadline_ends_the_drain(start_process: StartProcess) -> None:
    """A context that still speaks after `drain_s` is ended, even if its audio is not paced."""
    server = start_process(drain_s="0.2")
    async with Wire.connected(server.websocket_url) as wire:
        paced = await wire.start(SENTENCE * 30, max_lead_s=0.3, language="en")
        unpaced = await wire.open(max_lead_s=0, language="en")
        for _ in range(10):
            await wire.text(unpaced, SENTENCE * 20)
        await wire.until(ClientAudio, unpaced)
        server.terminate()
        assert await _close_code(wire) == 1001
        assert paced.record.done is None
    assert await _exit_status(server) == 0


async def test_the_deadline_answers_requests_without_an_answer(start_process: StartProcess) -> None:
    """A file that is not complete after `drain_s` is refused with `draining`, not with a 500."""
    server = start_process(drain_s="0.2", throttle='{"rtf": 1.0}')
    body = {"input": SENTENCE * 20, "stream": False}
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
        asking = asyncio.create_task(http.post("/v1/audio/speech", json=body))
        async with asyncio.timeout(PATIENCE_S):
            while not (await http.get("/health")).json()["contexts_active"]:
                await asyncio.sleep(0.02)
        server.terminate()
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert await _exit_status(server) == 0
