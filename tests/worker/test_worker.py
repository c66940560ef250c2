"""The real worker process on the embedded voice, from its start to its replacement."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testbed.throttling import throttled
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent, Expect, Follow
from voiceagent_tts.seam.commands import Cancel, Credit, Submit
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    ContextAudio,
    Done,
    Event,
    Failed,
    Ready,
    Words,
)
from voiceagent_tts.synthesizer.workers import Supervisor, WorkerClient
from voiceagent_tts.text.words import split_words

TEXT = "The quick brown fox jumps over the lazy dog."
ALL_OF_IT = 10**9


@pytest.fixture
async def worker() -> AsyncIterator[WorkerClient]:
    client = await WorkerClient.start(WorkerSpec("espeak"))
    yield client
    await client.close()


def speak(worker: WorkerClient, text: str = TEXT) -> "tuple[int, asyncio.Queue[Event]]":
    """Submit `text` with unlimited credit; returns the context and the queue of its events."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    context = worker.attach(events.put_nowait)
    worker.send(Submit(context, text, 0, False, "default", "en"))
    worker.send(Credit(context, time.monotonic(), ALL_OF_IT))
    return context, events


async def collect(events: "asyncio.Queue[Event]") -> list[Event]:
    collected: list[Event] = []
    while not collected or not isinstance(collected[-1], (Done, Cancelled, Failed)):
        collected.append(await events.get())
    return collected


async def test_cancel_frees_the_row_and_silences_the_context(worker: WorkerClient) -> None:
    context, events = speak(worker, TEXT * 200)
    while not isinstance(await events.get(), AudioStep):
        pass
    worker.detach(context, needs_cancel=True)
    seen = events.qsize()
    _, next_events = speak(worker)
    await collect(next_events)
    assert events.qsize() == seen
    assert worker.rows_used == 0


@pytest.mark.parametrize("bad", [Words, AudioStep, Done])
async def test_a_handler_that_fails_ends_its_context_alone(
    worker: WorkerClient, bad: type[Event]
) -> None:
    failures: list[Event] = []

    def fail(event: Event) -> None:
        if isinstance(event, Failed):
            failures.append(event)
        elif isinstance(event, bad):
            raise ZeroDivisionError

    context = worker.attach(fail)
    worker.send(Submit(context, TEXT, 0, False, "default", "en"))
    worker.send(Credit(context, time.monotonic(), ALL_OF_IT))
    _, events = speak(worker)
    assert isinstance((await collect(events))[-1], Done)
    (failed,) = failures
    assert isinstance(failed, Failed) and failed.code is ErrorCode.ENGINE_ERROR
    assert worker.rows_used == 0


async def test_a_handler_that_fails_leaves_nothing_in_the_worker(
    worker: WorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its context is cancelled there."""
    events: asyncio.Queue[Event | AlignEvent] = asyncio.Queue()
    sent: list[object] = []
    send = worker.send

    def fail(event: Event | AlignEvent) -> None:
        events.put_nowait(event)
        raise ZeroDivisionError

    context = worker.attach(fail)
    monkeypatch.setattr(worker, "send", lambda command: (sent.append(command), send(command)))
    worker.send(Submit(context, TEXT, 0, True, "default", "en"))
    worker.send(Credit(context, time.monotonic(), ALL_OF_IT))
    await events.get()
    assert isinstance(await events.get(), Failed)
    assert sent[-1] == Cancel(context)


async def test_a_handler_that_fails_leaves_no_session_in_an_aligner() -> None:
    failures: list[Event | AlignEvent] = []

    def fail(event: Event | AlignEvent) -> None:
        failures.append(event)
        raise ZeroDivisionError

    aligner = await WorkerClient.start(WorkerSpec("online"))
    try:
        context = aligner.attach(fail)
        aligner.send(Follow(context, "en", "v"))
        await until(lambda: aligner.stats.rows_used == 1, "the aligner follows")
        aligner.send(Expect(context, tuple(split_words(TEXT))))
        second = AudioChunk(0, bytes(2 * SAMPLE_RATE_HZ))
        aligner.send(AudioStep((ContextAudio(context, second),)))
        await until(lambda: aligner.stats.rows_used == 0, "the aligner has dropped it")
        assert failures and isinstance(failures[-1], Failed)
    finally:
        await aligner.close()


async def test_what_a_worker_sent_before_its_end_is_received() -> None:
    spec = throttled(WorkerSpec("espeak"), {"crash_after_s": 1.5})
    worker = await WorkerClient.start(spec)
    ending = os.pidfd_open(worker.pid)
    events: asyncio.Queue[Event] = asyncio.Queue()

    def listen(event: Event | AlignEvent) -> None:
        if events.empty():
            select.select([ending], [], [])  # the first event keeps the loop until the end
        assert not isinstance(event, Aligned)
        events.put_nowait(event)

    try:
        context = worker.attach(listen)
        worker.send(Submit(context, TEXT, 0, False, "default", "en"))
        worker.send(Credit(context, time.monotonic(), ALL_OF_IT))
        collected = await collect(events)
    finally:
        os.close(ending)
    assert isinstance(collected[-1], Failed)
    steps = [event for event in collected if isinstance(event, AudioStep)]
    assert steps[-1].rows[0].chunk.end_sample >= 1.5 * SAMPLE_RATE_HZ


@contextlib.contextmanager
def starved_network_threads() -> Iterator[None]:
    """Let ZeroMQ's threads of this process run only when nothing else wants a core."""
    tasks = list(Path("/proc/self/task").iterdir())
    threads = [int(task.name) for task in tasks if "ZMQbg/IO" in (task / "comm").read_text()]
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    busy = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.thorough
@pytest.mark.realtime
async def test_what_a_worker_sent_before_its_end_is_received_by_a_busy_machine() -> None:
    """The end of the process may be known before its last messages have been read."""
    for _ in range(10):
        worker = await WorkerClient.start(throttled(WorkerSpec("espeak"), {"crash_after_s": 1.5}))
        with starved_network_threads():
            collected = await collect(speak(worker)[1])
        steps = [event for event in collected if isinstance(event, AudioStep)]
        assert steps[-1].rows[0].chunk.end_sample >= 1.5 * SAMPLE_RATE_HZ


async def test_a_worker_that_hangs_is_killed() -> None:
    spec = WorkerSpec("espeak", heartbeat_timeout_s=1.5)
    worker = await WorkerClient.start(spec)
    events: asyncio.Queue[Event] = asyncio.Queue()
    worker.attach(events.put_nowait)
    os.kill(worker.pid, signal.SIGSTOP)
    failed = await events.get()
    assert isinstance(failed, Failed)
    assert "no sign of life" in failed.message
    await worker.closed.wait()


async def test_a_pause_of_all_is_no_silence() -> None:
    worker = await WorkerClient.start(WorkerSpec("espeak", heartbeat_timeout_s=1.5))
    try:
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(2.0)  # longer than a worker may be silent: this is the pause
        os.kill(worker.pid, signal.SIGCONT)
        assert isinstance((await collect(speak(worker)[1]))[-1], Done)
    finally:
        await worker.close()


async def test_an_engine_that_cannot_start_says_so() -> None:
    with pytest.raises(EngineError, match="ended with status 2"):
        await WorkerClient.start(WorkerSpec("no-such-engine"))


async def test_close_is_idempotent(worker: WorkerClient) -> None:
    """Closing is idempotent and fails the open contexts; no other is attached."""
    _, events = speak(worker, TEXT * 500)
    await worker.close()
    await worker.close()
    assert isinstance((await collect(events))[-1], Failed)
    with pytest.raises(EngineError):
        worker.attach(lambda event: None)


async def test_a_close_that_is_cancelled_ends_as_cancelled() -> None:
    supervisor = Supervisor(WorkerSpec("espeak"))
    await supervisor.start()
    worker = await supervisor.wait_for_worker(1.0)
    closing = asyncio.create_task(supervisor.close())
    await asyncio.sleep(0)  # it waits for the task that replaces dead workers
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert supervisor.worker is None
    await until(worker.closed.is_set, "the worker has ended")


async def test_waiting_for_a_worker_has_an_end() -> None:
    """While no worker runs, the error is `model_not_ready` with a time to retry."""
    supervisor = Supervisor(WorkerSpec("espeak"))
    with pytest.raises(OverloadedError) as caught:
        await supervisor.wait_for_worker(0.01)
    assert caught.value.code is ErrorCode.MODEL_NOT_READY
    assert caught.value.retry_after_ms


async def test_a_worker_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(WorkerSpec("espeak"))
    await supervisor.start()
    try:
        worker = await supervisor.wait_for_worker(1.0)
        with monkeypatch.context() as patch:
            known = wire._of_kind
            patch.setattr(wire, "_of_kind", lambda name: known(name.replace("Audio", "Another")))
            failed = (await collect(speak(worker)[1]))[-1]
        assert isinstance(failed, Failed) and "from the same installation" in failed.message
        await worker.closed.wait()
        assert isinstance(
            (await collect(speak(await supervisor.wait_for_worker(30.0))[1]))[-1], Done
        )
    finally:
        await supervisor.close()


async def test_a_replacement_that_fails_unexpectedly_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A defect in the start of one leaves the server without an engine for a moment only."""
    supervisor, has_failed = Supervisor(WorkerSpec("espeak")), asyncio.Event()
    await supervisor.start()

    async def fail(worker: WorkerClient) -> None:
        has_failed.set()
        raise IndexError

    try:
        with monkeypatch.context() as patch:
            patch.setattr(WorkerClient, "_start_process", fail)
            os.kill((await supervisor.wait_for_worker(1.0)).pid, signal.SIGKILL)
            await has_failed.wait()
        replacement = await supervisor.wait_for_worker(PATIENCE_S)
        assert isinstance((await collect(speak(replacement)[1]))[-1], Done)
    finally:
        await supervisor.close()


async def test_a_close_together_with_a_new_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close in the very moment in which a replacement reports ready stops it, and returns."""
    supervisor = Supervisor(WorkerSpec("espeak"))
    await supervisor.start()
    closing: list[asyncio.Task[None]] = []
    decode = wire.decode

    def close_at_ready(parts: list[bytes]) -> object:
        message = decode(parts)
        if isinstance(message, Ready):
            closing.append(asyncio.create_task(supervisor.close()))
        return message

    worker = await supervisor.wait_for_worker(1.0)
    monkeypatch.setattr(wire, "decode", close_at_ready)
    os.kill(worker.pid, signal.SIGKILL)
    await until(lambda: bool(closing), "the replacement is ready")
    ended, _ = await asyncio.wait(closing, timeout=PATIENCE_S)
    assert ended and supervisor.worker is None


PARENT = """
import asyncio, sys
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.synthesizer.workers import WorkerClient

async def main():
    worker = await WorkerClient.start(WorkerSpec("espeak"))
    print(worker.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_worker_ends_with_its_parent() -> None:
    """A worker ends with its server, even after kill -9."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker_pid = int(parent.stdout.readline())
        # A pidfd becomes readable when the process ends, whoever its parent is by then.
        descriptor = os.pidfd_open(worker_pid)
        parent.kill()
    try:
        readable, _, _ = select.select([descriptor], [], [], 30)
        assert readable, "the worker outlived its parent"
    finally:
        os.close(descriptor)
