"""One worker process, seen from the server's event loop.

Starts the process, sends it commands, hands each event to the context it belongs to, and tells
every context when the process is gone. It does not restart anything (`worker.supervisor` does) and
knows no voices, sockets or users.
"""

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
import zmq
import zmq.asyncio

from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.aligner_messages import AlignCommand, Aligned, AlignEvent
from voiceagent_tts.seam.commands import Cancel, Command
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    Done,
    Event,
    Failed,
    Ready,
    SegmentEnd,
    Stats,
    Words,
)

EventHandler = Callable[[Event | AlignEvent], None]
"""Receives the events of one context; an `AudioStep` has that context's row only."""

_LOOKS = 4
"""How often a worker is looked at in the time that it may be silent."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Which worker to run and how long to believe in it.

    Args:
        engine: name of an engine or aligner that `python -m voiceagent_tts.worker` knows.
        options: what that engine is told, as JSON can hold it.
        throttle: fields of `worker.throttled.Throttle`; None for the engine as it is.
        ready_timeout_s: from start to `Ready`.
        heartbeat_timeout_s: a worker that is silent for longer is killed.
        environment: variables beside the server's own.
        group: workers of one group speak the same voices alike; None for one without its like.
    """

    engine: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    throttle: Mapping[str, Any] | None = None
    ready_timeout_s: float = 60.0
    heartbeat_timeout_s: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    group: str | None = None

    def argv(self, endpoint: str) -> list[str]:
        """Command line of the worker process."""
        argv = [sys.executable, "-m", "voiceagent_tts.worker", self.engine, endpoint]
        if self.options:
            argv += ["--options", json.dumps(dict(self.options))]
        if self.throttle is not None:
            argv += ["--throttle", json.dumps(dict(self.throttle))]
        return argv


class WorkerClient:
    """A running worker. Create it with `start`."""

    capabilities: Capabilities

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._numbers = itertools.count(1)
        self._listeners: dict[int, EventHandler] = {}
        self._rows: set[int] = set()
        self._ready = asyncio.get_running_loop().create_future()
        self._is_heard = False  # since `_watch` has looked last
        self._failure: str | None = None
        self.stats = Stats(0, 0, 0.0)
        self.closed = asyncio.Event()

    @classmethod
    async def start(cls, spec: WorkerSpec) -> "WorkerClient":
        """Start the process and wait until it is ready.

        Raises:
            EngineError: the process could not be started, ended or was not ready in time.
        """
        worker = cls(spec)
        await worker._open()
        return worker

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row, or may still hold one: freed by their last event."""
        return len(self._rows)

    def attach(self, listener: EventHandler) -> int:
        """Reserve a row for a new context, whose events go to `listener`.

        Returns:
            The context's number on this worker.

        Raises:
            EngineError: the worker is gone.
        """
        if self.closed.is_set():
            raise EngineError("the engine has just stopped; try again")
        context = next(self._numbers)
        self._listeners[context] = listener
        self._rows.add(context)
        return context

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Stop listening to `context`; idempotent.

        Args:
            context: a number from `attach`.
            needs_cancel: whether the worker was told of it and must free a row. The row counts as
                used until the worker says that it is free.
        """
        if self._listeners.pop(context, None) is None:
            return
        if needs_cancel:
            self.send(Cancel(context))
        else:
            self._rows.discard(context)

    def send(self, command: Command | AlignCommand) -> None:
        """Hand a command to the worker; lost, like its context, if the worker is gone."""
        if not self.closed.is_set():
            # There is no high-water mark, so the send is complete when the call returns.
            self._socket.send_multipart(wire.encode(command))

    async def close(self) -> None:
        """Stop the process, fail what it still held, and wait until it is gone; idempotent."""
        self._failure = self._failure or "the engine was stopped"
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), timeout=2.0)
        except TimeoutError:
            self._process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self) -> None:
        try:
            await self._start_process()
        except (OSError, zmq.ZMQError) as error:
            raise EngineError(
                f"the {self._spec.engine} worker cannot be started: {error}; TMPDIR may name "
                "another folder, with room and a short path"
            ) from error
        receiving = asyncio.create_task(self._receive())
        watching = asyncio.create_task(self._watch())
        self._tasks = [receiving, watching, asyncio.create_task(self._reap(receiving, watching))]
        try:
            self.capabilities = await asyncio.wait_for(self._ready, self._spec.ready_timeout_s)
        except asyncio.CancelledError:
            await self.close()
            raise
        except TimeoutError:
            await self.close()
            raise EngineError(
                f"the {self._spec.engine} worker was not ready in {self._spec.ready_timeout_s:g} s"
            ) from None

    async def _start_process(self) -> None:
        # A private directory, so that no other user can speak on this socket.
        self._directory = tempfile.TemporaryDirectory(prefix="voiceagent-")
        endpoint = f"ipc://{self._directory.name}/worker"
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.LINGER, 0)
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
        self._socket.close()
        self._directory.cleanup()

    async def _receive(self) -> None:
        while True:
            event = wire.decode(await self._socket.recv_multipart())
            self._is_heard = True
            self._dispatch(event)  # pyright: ignore[reportArgumentType]
            # A message that is here already is received without a pause: let its readers go first.
            await asyncio.sleep(0)

    def _dispatch(self, event: Event | AlignEvent) -> None:
        match event:
            case AudioStep(rows):
                for row in rows:
                    if listener := self._listeners.get(row.context):
                        listener(AudioStep((row,)))
            case Words(context) | SegmentEnd(context) | Aligned(context):
                if listener := self._listeners.get(context):
                    listener(event)
            case Done(context) | Cancelled(context) | Failed(int(context)):
                self._rows.discard(context)
                if listener := self._listeners.pop(context, None):
                    listener(event)
            case Ready(capabilities):
                self._ready.set_result(capabilities)
            case Stats():
                self.stats = event
            case Failed(None, _, message):
                self._failure = message

    async def _watch(self) -> None:
        """Kill a worker that has stopped to give signs of life.

        Looks are counted, not seconds: where this process stood still, they say nothing of the
        worker, whose signs wait to be received.
        """
        timeout_s = self._spec.heartbeat_timeout_s
        silent_looks = 0
        while silent_looks < _LOOKS:
            self._is_heard = False
            await asyncio.sleep(timeout_s / _LOOKS)
            is_silent = self._ready.done() and not self._is_heard
            silent_looks = silent_looks + 1 if is_silent else 0
        self._failure = f"the engine gave no sign of life for {timeout_s:g} s"
        self._process.kill()

    async def _reap(self, receiving: asyncio.Task[None], watching: asyncio.Task[None]) -> None:
        """When the process ends: free everything, then tell every context."""
        status = await self._process.wait()
        # Let what it sent last be received, and what was received be handed on.
        while not receiving.done() and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in (receiving, watching):
            task.cancel()
        await asyncio.gather(receiving, watching, return_exceptions=True)
        message = self._failure or f"the engine process ended with status {status}"
        _log.info("worker_ended", engine=self._spec.engine, pid=self.pid, status=status)
        self.closed.set()
        self._release()
        listeners, self._listeners = self._listeners, {}
        self._rows.clear()
        if not self._ready.done():
            self._ready.set_exception(EngineError(message))
        for context, listener in listeners.items():
            listener(Failed(context, ErrorCode.ENGINE_ERROR, message))
