"""Runs one engine or aligner in this process: commands from a socket in, events out, a heartbeat.

The host ends with its parent: the parent holds the other end of standard input open, so the host
reads end of file as soon as the parent dies.
"""

import gc
import logging
import math
import signal
import sys
import time
import traceback

import zmq

from voiceagent_tts.errors import EngineError, VoiceAgentError
from voiceagent_tts.garbage import give_back_memory
from voiceagent_tts.seam import wire
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.engine_kind import MakeEngine
from voiceagent_tts.seam.events import AudioStep, Failed, Ready, Stats
from voiceagent_tts.seam.wire import Message
from voiceagent_tts.tracing import start_exporter
from voiceagent_tts.worker.engine_spans import EngineSpans

HEARTBEAT_S = 1.0

_IDLE_S = 5.0
"""Time without a row after which freed memory goes back to the system."""
_LINGER_MS = 1000
"""Longest time to send the last messages when the process ends."""

_logger = logging.getLogger(__name__)


def run(endpoint: str, make_engine: MakeEngine) -> int:
    """Serve the parent at `endpoint` (`ipc://...`) until it ends.

    Returns:
        Exit status: 0 where the parent ended, 1 where the engine failed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C: it drains
    with zmq.Context() as zmq_context, zmq_context.socket(zmq.PAIR) as socket:
        # Credit bounds the messages in flight; a high-water mark would drop or block them.
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        hosting = _Host(socket, endpoint)
        # Until the last messages are sent, it keeps a fault and with it the tensors of its frames:
        # after some faults of a GPU, PyTorch ends the process when they are released.
        return hosting.run(make_engine)


class _Host:
    """Steps one engine, and carries its messages over `socket`."""

    def __init__(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        self._socket, self._endpoint = socket, endpoint
        self._parent = sys.stdin.fileno()
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._parent, zmq.POLLIN)
        self._next_heartbeat = time.monotonic()
        self._busy_s = 0.0
        self._audio_samples = 0
        self._idle_at: float | None = None  # when no row has been used for `_IDLE_S`
        self._engine: Engine | None = None  # once it steps
        self._spans: EngineSpans | None = None
        self._fault: Exception | None = None

    def run(self, make_engine: MakeEngine) -> int:
        exporter = start_exporter()
        try:
            engine = self._make(make_engine)
            if exporter is not None:
                self._spans = EngineSpans(exporter.tracer, engine.capabilities)
            # Loaded objects stay. A full collection that visits it stops every row for 0.15 s.
            gc.collect()
            gc.freeze()
            gc.enable()
            self._send(Ready(engine.capabilities))
            self._loop(engine)
        except VoiceAgentError as error:
            self._fault = error  # its traceback has tensors whose release may end the process
            self._send(Failed(None, error.code, error.message))
            return 1
        except Exception as error:
            self._fault, failure = error, EngineError.of("the engine", error)
            self._send(Failed(None, failure.code, failure.message))
            if self._engine is None:  # it was loading, and had received no text
                raise
            calls = "".join(traceback.format_tb(error.__traceback__))
            _logger.error("%s\n%s", failure, calls)  # its own message may quote the spoken text
            return 1
        finally:
            if exporter is not None:
                exporter.close()
        engine.close()
        return 0

    def _make(self, make_engine: MakeEngine) -> Engine:
        """Create the engine, which may restart this process, and only then connect."""
        try:
            return make_engine(self._receive, self._send)
        finally:
            self._socket.connect(self._endpoint)

    def _loop(self, engine: Engine) -> None:
        self._engine = engine
        while True:
            started = time.monotonic()
            wait_s = engine.step()
            self._busy_s += time.monotonic() - started
            self._beat()
            self._give_back_when_idle(engine, started)
            if self._is_parent_gone(wait_s):
                return

    def _give_back_when_idle(self, engine: Engine, now: float) -> None:
        if engine.rows_used:
            self._idle_at = now + _IDLE_S
        elif self._idle_at is not None and now >= self._idle_at:
            self._idle_at = None
            give_back_memory()

    def _beat(self) -> None:
        """Send the heartbeat if it is due; a long step does so when it reads commands."""
        now = time.monotonic()
        if self._engine is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            self._send(self._stats(self._engine))

    def _stats(self, engine: Engine) -> Stats:
        return Stats(engine.rows_used, self._audio_samples, self._busy_s, engine.metrics)

    def _is_parent_gone(self, wait_s: float | None) -> bool:
        """Sleep until a command arrives, or the next step or heartbeat is due."""
        until_heartbeat_s = max(0.0, self._next_heartbeat - time.monotonic())
        timeout_s = until_heartbeat_s if wait_s is None else min(wait_s, until_heartbeat_s)
        ready = dict(self._poller.poll(math.ceil(timeout_s * 1000)))
        return self._parent in ready  # nothing is ever written there: readable means closed

    def _receive(self) -> list[Message]:
        self._beat()
        commands: list[Message] = []
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return commands
            command = wire.decode(parts)
            if self._spans is not None:
                self._spans.command(command)
            commands.append(command)
            self._idle_at = time.monotonic() + _IDLE_S  # also where it takes one step to speak

    def _send(self, event: Message) -> None:
        if isinstance(event, AudioStep):
            self._audio_samples += sum(row.chunk.samples for row in event.rows)
        if self._spans is not None:
            self._spans.event(event)
        self._socket.send_multipart(wire.encode(event))
