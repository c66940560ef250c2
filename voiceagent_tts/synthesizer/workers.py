"""Worker processes, seen from the server's event loop.

`WorkerClient` is one process: it passes each event to its context, and fails its contexts when the
process ends. `Row` is one context's row there, and `Speaker` speaks a context on it, with the
credit that `Pacer` computes. `Supervisor` replaces a process that has ended.
"""

import asyncio
import contextlib
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import structlog
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError, VoiceAgentError
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.commands import Append, Cancel, Command, Credit, Flush, Prepare, Submit
from voiceagent_tts.seam.engine_kind import RUNG_VARIABLE, WorkerSpec
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    Done,
    Event,
    Failed,
    Ready,
    Stats,
)
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import QueuedSegment

if TYPE_CHECKING:
    from voiceagent_tts.seam.aligner_messages import AlignCommand, AlignEvent

EventHandler = Callable[["Event | AlignEvent"], None]
"""Receives the events of one context; an `AudioStep` has that context's row only."""


def ignore(event: "Event | AlignEvent") -> None:
    """Replaces the handler of a context that has ended, so that reference counting frees it.

    Objects that refer to each other are freed only by a full garbage collection, which stops the
    event loop.
    """


OnFree = Callable[[], None]  # called once the row of a context is free
OnCancelled = Callable[[float], None]
"""Receives, for each cancel, the seconds until the worker had freed the row."""

_CHECKS = 4  # for signs of life within the heartbeat timeout
_LAST_MESSAGES_S = 10.0  # of an ended process; most arrive within 1 s
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 10.0
"""Pauses between attempts to start a worker, each twice as long as the one before."""
_MIN_LEAD_S = 0.2  # minimum lead: a shorter one is used up by timers and the delay of the resampler
_LONGEST_STEP_S = 0.5  # of credit
_SOON_S = 600.0
"""If two workers in a row fail within this time of their start, the next starts a rung lower."""

_log = structlog.get_logger(__name__)


class Worker(Protocol):
    """The part of a worker, or of a proxy in front of it, that a context uses."""

    @property
    def capabilities(self) -> Capabilities:
        """Voices, languages and limits of the worker."""
        ...

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        """Reserve a row; as `WorkerClient.attach`."""
        ...

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Release a row; as `WorkerClient.detach`."""
        ...

    def send(self, command: "Command | AlignCommand") -> None:
        """Send a command; events that answer it arrive in a later iteration of the event loop."""
        ...


@dataclass(slots=True)
class _Attached:
    """A context on a worker, until its row is free."""

    handler: EventHandler | None  # None once the context is detached
    on_free: OnFree | None
    cancelled_at: float | None = None  # `time.monotonic()` of its cancel


class WorkerClient:
    """A worker process and its contexts: sends their commands, and passes each its events.

    Create it with `start`.
    """

    capabilities: Capabilities  # set once it is ready

    def __init__(self, spec: WorkerSpec, on_cancelled: OnCancelled = lambda seconds: None) -> None:
        self.failure: str | None = None  # why it ended, as far as it is known
        self._spec = spec
        self._has_sign_of_life = False  # since the last check of `_watch`
        self._on_cancelled = on_cancelled
        self._numbers = itertools.count(1)
        self._contexts: dict[int, _Attached] = {}
        self._ready = asyncio.get_running_loop().create_future()
        self.stats = Stats(0, 0, 0.0)  # the last heartbeat
        self.realtime_factor: float | None = None
        """Compute seconds per second of audio, between two heartbeats with audio in between."""
        self.closed = asyncio.Event()  # the process has ended
        self.audio_at = -math.inf  # `time.monotonic()` of the last audio

    @classmethod
    async def start(
        cls, spec: WorkerSpec, on_cancelled: OnCancelled = lambda seconds: None
    ) -> "WorkerClient":
        """Start the process and wait until it is ready.

        Raises:
            EngineError: the process could not start, has ended, or was not ready in time.
        """
        worker = cls(spec, on_cancelled)
        await worker._start_tasks()
        await worker._wait_until_ready()
        return worker

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    async def close(self) -> None:
        """Stop the process, fail its contexts, and wait until it has ended; idempotent."""
        why = self.failure = self.failure or "the engine was stopped"
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(2.0):
                await self._process.wait()
        except TimeoutError:
            self._kill(why)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def rows_used(self) -> int:
        """Number of contexts that occupy a row or may still do so, until their last event."""
        return len(self._contexts)

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        """Reserve a row for a new context, whose events go to `handler`; return its number here.

        Raises:
            EngineError: the worker has ended.
        """
        if self.closed.is_set():
            raise EngineError("the engine has just stopped; try again")
        context = next(self._numbers)
        self._contexts[context] = _Attached(handler, on_free)
        return context

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Stop receiving events of a context; idempotent.

        With `needs_cancel` the worker knows the context, and the row counts as used until it
        reports it free.
        """
        attached = self._contexts.get(context)
        if attached is None or attached.handler is None:
            return
        attached.handler = None
        if needs_cancel:
            attached.cancelled_at = time.monotonic()
            self.send(Cancel(context))
        else:
            self._free_row(context)

    def send(self, command: "Command | AlignCommand") -> None:
        """Send a command to the worker; dropped if the worker has ended."""
        if not self.closed.is_set():
            # Without a high-water mark the send is complete when the call returns.
            self._socket.send_multipart(wire.encode(command))

    def _receive(self, event: "Event | AlignEvent") -> None:
        match event:
            case AudioStep(rows):
                self.audio_at = time.monotonic()
                for row in rows:
                    self._deliver(row.context, AudioStep((row,)))
            case Done(context) | Cancelled(context) | Failed(int(context)):  # of one context
                if handler := self._free_row(context):
                    self._call(handler, context, event)
            case Ready(capabilities):
                if not self._ready.done():  # as it is once `start` no longer waits
                    self._ready.set_result(capabilities)
            case Stats():
                made_samples = event.audio_samples - self.stats.audio_samples
                if made_samples > 0:
                    made_s = made_samples / SAMPLE_RATE_HZ
                    self.realtime_factor = (event.busy_s - self.stats.busy_s) / made_s
                self.stats = event
            case Failed(_, _, message):  # of the whole worker
                self.failure = message
            case _:
                self._deliver(event.context, event)

    def _deliver(self, context: int, event: "Event | AlignEvent") -> None:
        attached = self._contexts.get(context)
        if attached is not None and attached.handler is not None:
            self._call(attached.handler, context, event)

    def _call(self, handler: EventHandler, context: int, event: "Event | AlignEvent") -> None:
        """Call a handler; an error in it ends this context alone."""
        try:
            handler(event)
        except Exception as error:
            failure = EngineError.of("the server", error)
            _log.error("context_failed", engine=self._spec.engine, error=failure.message)
            self.detach(context, needs_cancel=True)  # the event came from there
            with contextlib.suppress(Exception):  # what failed may fail again
                handler(Failed(context, failure.code, failure.message))

    def _free_row(self, context: int) -> EventHandler | None:
        """Return the handler of the context, unless it is detached."""
        if (attached := self._contexts.pop(context, None)) is None:
            return None
        if attached.cancelled_at is not None:
            self._on_cancelled(time.monotonic() - attached.cancelled_at)
        if attached.on_free is not None:
            attached.on_free()
        return attached.handler

    def _end(self, why: str) -> None:
        self.closed.set()
        for attached in self._contexts.values():
            attached.cancelled_at = None  # no cancel freed this row
        handlers = {context: self._free_row(context) for context in [*self._contexts]}
        if not self._ready.done():
            self._ready.set_exception(EngineError(why))
        for context, handler in handlers.items():
            if handler is not None:
                self._call(handler, context, Failed(context, ErrorCode.ENGINE_ERROR, why))

    # The process.

    async def _start_tasks(self) -> None:
        try:
            await self._start_process()
        except (OSError, zmq.ZMQError) as error:
            raise EngineError(
                f"the {self._spec.engine} worker cannot be started: {error}; set TMPDIR to "
                "a folder with free space and a short path"
            ) from error
        receiving = asyncio.create_task(self._receive_all())
        watching = asyncio.create_task(self._watch())
        self._tasks = [receiving, watching, asyncio.create_task(self._reap(receiving, watching))]

    async def _start_process(self) -> None:
        # A private directory, so that no other user can connect to this socket.
        self._directory = tempfile.TemporaryDirectory(prefix="voiceagent-")
        endpoint = f"ipc://{self._directory.name}/worker"
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._connections = self._socket.get_monitor_socket(
            zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        )
        try:
            self._socket.bind(endpoint)
            self._process = await asyncio.create_subprocess_exec(
                *self._spec.argv(endpoint),
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, **self._spec.environment},
            )
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        self._socket.disable_monitor()
        self._connections.close()
        self._socket.close()
        self._directory.cleanup()

    async def _receive_all(self) -> None:
        while True:
            message = await self._socket.recv_multipart()
            try:
                event = wire.decode(message)
            except EngineError as error:  # such as a worker of another version of this package
                self._kill(error.message)
                return
            self._has_sign_of_life = True
            self._receive(event)  # pyright: ignore[reportArgumentType]
            # Queued messages are received without a pause: let other tasks run in between.
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        """Kill a worker that gives no sign of life within the heartbeat timeout.

        Checks are counted, not seconds: if this process itself was suspended, the worker's messages
        wait to be received.
        """
        timeout_s = self._spec.heartbeat_timeout_s
        silent_checks = 0
        while silent_checks < _CHECKS:
            self._has_sign_of_life = False
            await asyncio.sleep(timeout_s / _CHECKS)
            # Before it is ready, it loads for long without a sign of life.
            is_silent = self._ready.done() and not self._has_sign_of_life
            silent_checks = silent_checks + 1 if is_silent else 0
        self._kill(f"the engine gave no sign of life for {timeout_s:g} s")

    def _kill(self, why: str) -> None:
        self.failure = why
        with contextlib.suppress(ProcessLookupError):  # it has ended at the last moment
            self._process.kill()

    async def _wait_for_last_messages(self) -> None:
        """Wait until ZeroMQ's own thread has read all that the ended process sent.

        On a busy machine the end of a process is known before its last messages are. ZeroMQ reports
        a connection as closed when it has read to its end.
        """
        is_connected = await self._connections.poll(0)
        with contextlib.suppress(TimeoutError, zmq.ZMQError):
            async with asyncio.timeout(_LAST_MESSAGES_S if is_connected else 0):
                while True:
                    event = await recv_monitor_message(self._connections)
                    if event["event"] == zmq.EVENT_DISCONNECTED:
                        return

    async def _reap(self, receiving: asyncio.Task[None], watching: asyncio.Task[None]) -> None:
        status = await self._process.wait()
        await self._wait_for_last_messages()
        while not receiving.done() and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in (receiving, watching):
            task.cancel()
        await asyncio.gather(receiving, watching, return_exceptions=True)
        _log.info("worker_ended", engine=self._spec.engine, pid=self.pid, status=status)
        self._release()
        self._end(self.failure or f"the engine process ended with status {status}")

    async def _wait_until_ready(self) -> None:
        try:
            # Not `asyncio.wait_for`: in Python 3.11 it ignores a cancellation that comes together
            # with the result, and a server that closes then would wait for this task forever.
            async with asyncio.timeout(self._spec.ready_timeout_s):
                self.capabilities = await self._ready
            self._directory.cleanup()  # it is connected; a process that is killed leaves no folder
        except asyncio.CancelledError:
            await self.close()
            raise
        except TimeoutError:
            await self.close()
            raise EngineError(
                f"the {self._spec.engine} worker was not ready in {self._spec.ready_timeout_s:g} s"
            ) from None


class Row:
    """One context's row on a worker: reserved, then active, then released."""

    worker: Worker
    number: int  # of the context on the worker
    is_reserved: bool  # the worker has not received a command of the context yet
    is_active: bool  # the worker has received one, and may still answer

    def reserve(
        self, worker: Worker, on_event: EventHandler, on_free: OnFree | None = None
    ) -> None:
        """Reserve a row; `on_free` is called once it is free, which is later than `release`."""
        self.number = worker.attach(on_event, on_free)
        self.worker = worker
        self.is_reserved, self.is_active = True, False

    def start(self, command: "Command | AlignCommand") -> None:
        """Send the first command."""
        self.is_reserved, self.is_active = False, True
        self.worker.send(command)

    def send(self, command: "Command | AlignCommand") -> None:
        """Send another command; dropped unless the row is active."""
        if self.is_active:
            self.worker.send(command)

    def release(self) -> None:
        """Release the row and receive no more events; idempotent."""
        self.worker.detach(self.number, needs_cancel=self.is_active)
        self.is_reserved = self.is_active = False


def preparation_of(request: ContextRequest) -> Prepare:
    """Announce a context to an engine."""
    voice = request.voice
    how = (request.language, request.feeding, request.speech)
    return Prepare(voice.engine_name, *how, voice_version=voice.version)


FindWorker = Callable[[str], tuple[Worker, ContextRequest] | None]
"""Finds the worker, and the request to it, for the language of the first text, where the client has
chosen neither voice nor language; None to stay with the context's worker."""


class Speaker(Row):
    """Speaks the segments of one context on its row."""

    def __init__(
        self,
        worker: Worker,
        request: ContextRequest,
        on_event: EventHandler,
        on_free: OnFree | None = None,
        find_worker: FindWorker | None = None,
    ) -> None:
        self._is_last_sent = False
        self._spoken_language: str | None = None  # of the last segment in one that the voice speaks
        self._rows = 0  # two while it moves
        self._on_event = on_event
        self._on_free = on_free
        self._find_worker = find_worker
        self._move_to(worker, request)

    def _move_to(self, worker: Worker, request: ContextRequest) -> None:
        self.reserve(worker, self._on_event, self._note_free)
        self.request = request  # that of the last worker
        self._preparation = preparation_of(request)
        self._rows += 1

    def _note_free(self) -> None:
        self._rows -= 1
        if not self._rows and self._on_free is not None:
            self._on_free()

    def prepare(self) -> None:
        """Ask the worker to prepare, so that the first audio is sooner."""
        # The prompt begins with the language; segments without one take it from their text.
        if self.request.language is not None or self.request.feeding == "token":
            self.worker.send(self._preparation)

    def choose_worker(self, language: str) -> None:
        """Move to a worker that speaks the language of the first segment, if there is one."""
        find, self._find_worker = self._find_worker, None
        if find is not None and self.is_reserved and (found := find(language)) is not None:
            left, number = self.worker, self.number
            self._move_to(*found)
            left.detach(number, needs_cancel=False)

    def speak(self, queued: QueuedSegment) -> None:
        """Speak the next segment; the first one starts the row."""
        self._is_last_sent = queued.is_last
        segment, request = queued.segment, self.request
        spoken = {each.partition("-")[0] for each in request.languages}
        language = queued.language
        if language is not None and spoken and language.partition("-")[0] not in spoken:
            language = self._spoken_language  # at first None: the engine chooses
        self._spoken_language = language
        text = (self.number, segment.text, segment.char_start, not queued.is_last)
        if self.is_active:
            self.send(Append(*text, language, segment.readings))
        elif self.is_reserved:
            voice, version = self._preparation.voice, self._preparation.voice_version
            how = (language, request.feeding, request.speech, segment.readings)
            trace = request.options.traceparent
            self.start(Submit(*text, voice, *how, trace, voice_version=version))

    def end_text(self, char_end: int) -> None:
        """Report that no text follows the text before `char_end`, unless the last segment did."""
        if not self._is_last_sent:
            self.send(Append(self.number, "", char_end, False, None))

    def flush(self) -> None:
        """Make the engine speak all text so far, as if the text ended here."""
        self.send(Flush(self.number))

    def grant(self, playout_end: float, samples_wanted: int) -> None:
        """Give credit."""
        self.send(Credit(self.number, playout_end, samples_wanted))

    def release(self) -> None:
        """Release the row and stop speaking; idempotent."""
        self._on_event = ignore
        super().release()


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
        """Return how many samples the listener may get in all; None if no step is due."""
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


class Supervisor:
    """Runs one worker, and replaces it when it ends.

    Repeated failures on a GPU may come from a kernel that only some batch sizes use. After two
    early failures in a row, each replacement starts one rung lower (`engine.ladder`). A worker that
    was killed is replaced by an equal one.
    """

    capabilities: Capabilities  # also while it is being replaced; set once it has started

    def __init__(self, spec: WorkerSpec, on_cancelled: OnCancelled = lambda seconds: None) -> None:
        self.group = spec.group
        self.failures = 0  # consecutive workers that failed early
        self.restarts = 0
        self._spec = spec
        self._on_cancelled = on_cancelled
        self._worker: WorkerClient | None = None
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._rung = 0  # rung of the next worker; 0 is the first one's

    async def start(self, *, is_required: bool = True) -> None:
        """Start the first worker.

        Args:
            is_required: whether it must start now; if not, it is tried again in the background.

        Raises:
            EngineError: the worker cannot start, and is required.
        """
        try:
            self._set_worker(await WorkerClient.start(self._spec, self._on_cancelled))
        except EngineError as error:
            if is_required:
                raise
            _log.error("worker_failed_to_start", engine=self._spec.engine, error=str(error))
        self._task = asyncio.create_task(self._keep_running())

    def _set_worker(self, worker: WorkerClient) -> None:
        self._worker, self.capabilities = worker, worker.capabilities

    @property
    def worker(self) -> WorkerClient | None:
        """The running worker; None while it is being replaced."""
        is_running = self._worker is not None and not self._worker.closed.is_set()
        return self._worker if is_running else None

    @property
    def free_worker(self) -> WorkerClient | None:
        """The running worker, if it has a free row."""
        worker = self.worker
        is_free = worker is not None and worker.rows_used < worker.capabilities.max_rows
        return worker if is_free else None

    async def wait_for_worker(self, timeout_s: float) -> WorkerClient:
        """Return the running worker, or the next one if it is ready within `timeout_s`.

        Raises:
            OverloadedError: with code `model_not_ready`, if none is ready in time.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.worker is not None)
        except TimeoutError:
            raise OverloadedError(
                f"the {self._spec.engine} engine is being restarted; try again",
                code=ErrorCode.MODEL_NOT_READY,
                retry_after_ms=1000,
            ) from None
        assert self._worker is not None
        return self._worker

    async def close(self) -> None:
        """Stop the worker for good; idempotent."""
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})  # unlike the task, it raises the caller's cancel
        finally:
            if self._worker is not None:
                worker, self._worker = self._worker, None
                await worker.close()

    async def _keep_running(self) -> None:
        while True:
            if (worker := self._worker) is not None:
                started = time.monotonic()
                await worker.closed.wait()
                self._worker = None
                self.restarts += 1
                self._learn_from(worker.failure, time.monotonic() - started)
                _log.warning("worker_restarting", engine=self._spec.engine, restarts=self.restarts)
            self._set_worker(await self._start_again())
            async with self._changed:
                self._changed.notify_all()

    def _learn_from(self, failure: str | None, served_s: float) -> None:
        self.failures = self.failures + 1 if failure and served_s < _SOON_S else 0
        if self.failures > 1:
            self._rung += 1
            place = {RUNG_VARIABLE: f"{self._rung} {failure}"}
            self._spec = replace(self._spec, environment={**self._spec.environment, **place})

    async def _start_again(self) -> WorkerClient:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await WorkerClient.start(self._spec, self._on_cancelled)
            except Exception as error:  # the next attempt may succeed
                problem = VoiceAgentError.wrapping(error).message
                _log.error("worker_failed_to_start", engine=self._spec.engine, error=problem)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
