"""An engine and the forced aligner in one process, so that they share its GPU.

The aligner has a thread of its own. Both use one CUDA context, in which the streams of the engine
have the higher priority; two processes would take turns instead. The engine goes first on the host,
too: a pass of the aligner begins when no listener is in a hurry, or after a limited wait. Knows no
engine or aligner by name and no torch.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.aligner_messages import Expect, Finish, Follow
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.engine import Engine, Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    Done,
    Failed,
    SegmentEnd,
)
from voiceagent_tts.seam.wire import Message

LONGEST_WAIT_S = 0.2
"""A pass begins after this wait even if listeners are in a hurry: the words of a listener who has
0.4 s in hand are still in time."""

_POLL_S = 0.005
"""An engine without work looks this often for answers while a pass runs."""

_logger = logging.getLogger(__name__)


class BusyEngine(Engine, Protocol):
    """An engine that knows whether its listeners are in a hurry."""

    @property
    def has_time(self) -> bool:
        """Whether other work on the device would delay no listener."""
        ...


class Sessions(Protocol):
    """The contexts of an aligner; `aligner.sessions.AlignerSessions` implements it."""

    def step(self) -> float | None:
        """Handle the waiting commands and align what is due; None if nothing more is due."""
        ...

    def close(self) -> None:
        """Drop every context; idempotent."""
        ...


MakeSessions = Callable[[Callable[[], list[Any]], Callable[[Any], None]], Sessions]


class AligningEngine:
    """Implements `seam.engine.Engine`; commands to the aligner go to the aligner's thread.

    Args:
        make_engine: creates the engine from its inbox and outbox.
        make_sessions: creates the contexts of the aligner from their inbox and outbox.
        inbox: source of the commands to both.
        outbox: destination of the events of both; used by the caller's thread only.
        placement: where the aligner runs and why, for the server's log.
        clock: measures the wait of a pass.
    """

    def __init__(
        self,
        make_engine: Callable[[Inbox, Outbox], BusyEngine],
        make_sessions: MakeSessions,
        inbox: Callable[[], list[Message]],
        outbox: Outbox,
        placement: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._aligner = _AlignerThread(make_sessions, clock)
        self._placement = placement
        self._aligned: set[int] = set()  # contexts that the aligner knows
        self._engine = make_engine(self._engine_commands, outbox)
        self._aligner.start()

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine, and that it has an aligner."""
        return replace(self._engine.capabilities, aligner=self._placement)

    @property
    def rows_used(self) -> int:
        """Rows of the engine."""
        return self._engine.rows_used

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the engine, and of the passes beside it."""
        return {**self._engine.metrics, **self._aligner.metrics()}

    def step(self) -> float | None:
        """Step the engine, and send the answers of the aligner."""
        wait_s = self._engine.step()
        # An engine that waits for commands has no listener in a hurry.
        self._aligner.allow(is_free=wait_s is None or self._engine.has_time)
        is_busy = self._aligner.is_busy  # read before the answers, so that none is left behind
        self._send_answers()
        if not is_busy:
            return wait_s
        return _POLL_S if wait_s is None else min(wait_s, _POLL_S)

    def close(self) -> None:
        """Close both; idempotent."""
        self._aligner.close()
        self._engine.close()

    def _engine_commands(self) -> list[Any]:
        """Return the engine's commands, and pass the aligner's on."""
        engine, aligner = list[Any](), list[Any]()
        for command in self._inbox():
            (aligner if self._is_for_aligner(command) else engine).append(command)
        if aligner:
            self._aligner.receive(aligner)
        return engine

    def _is_for_aligner(self, command: Message) -> bool:
        match command:
            case Follow(context):
                self._aligned.add(context)
                return True
            case Expect() | Finish() | AudioStep() | SegmentEnd():
                return True
            case Cancel(context):
                return context in self._aligned
            case _:
                return False

    def _send_answers(self) -> None:
        has_failed = self._aligner.has_failed
        for answer in self._aligner.answers():
            if isinstance(answer, Done | Failed | Cancelled) and answer.context is not None:
                self._aligned.discard(answer.context)
            self._outbox(answer)
        if has_failed:
            for context in sorted(self._aligned):
                self._outbox(Failed(context, ErrorCode.ENGINE_ERROR, "the forced aligner stopped"))
            self._aligned.clear()


class _AlignerThread:
    """Steps an aligner in a thread: commands in, answers out, no pass before its time.

    Args:
        make_sessions: creates the contexts from their inbox and outbox, in the caller's thread.
        clock: measures the wait of a pass.
    """

    def __init__(self, make_sessions: MakeSessions, clock: Callable[[], float]) -> None:
        self._commands: deque[Any] = deque()
        self._answers: deque[Any] = deque()
        self._sessions = make_sessions(self._take, self._answers.append)
        self._clock = clock
        self._changed = threading.Condition()
        self._is_free = True  # whether the engine has time
        self._is_closed = False
        self._has_work = False
        self.has_failed = False
        self._steps, self._busy_s, self._waited_s = 0, 0.0, 0.0
        self._thread = threading.Thread(target=self._run, name="forced-aligner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether an answer may come without a further command."""
        return self._has_work and not self.has_failed

    def receive(self, commands: list[Any]) -> None:
        """Give commands to the aligner; those for one that has failed are dropped."""
        if self.has_failed:
            return
        with self._changed:
            self._commands += commands
            self._has_work = True
            self._changed.notify()

    def allow(self, *, is_free: bool) -> None:
        """Say whether the engine has time for a pass."""
        if is_free != self._is_free:
            with self._changed:
                self._is_free = is_free
                self._changed.notify()

    def answers(self) -> list[Any]:
        """Return the answers since the last call."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def metrics(self) -> dict[str, float]:
        return {
            "aligner_steps_total": self._steps,
            "aligner_busy_seconds_total": self._busy_s,
            "aligner_waited_seconds_total": self._waited_s,
        }

    def close(self) -> None:
        """End the thread after the pass that is running."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout=2.0)

    def _take(self) -> list[Any]:
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def _run(self) -> None:
        try:
            while self._wait():
                began_s = self._clock()
                is_done = self._sessions.step() is None
                self._steps += 1
                self._busy_s += self._clock() - began_s
                with self._changed:
                    self._has_work = not is_done or bool(self._commands)
        except Exception as error:  # the engine must go on speaking
            _logger.error("the forced aligner stopped: %s", type(error).__name__)
            self.has_failed = True
        finally:
            self._sessions.close()

    def _wait(self) -> bool:
        """Wait for work, and then for the engine; return False once the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work or self._is_closed)
            began_s = self._clock()
            self._changed.wait_for(lambda: self._is_free or self._is_closed, LONGEST_WAIT_S)
            self._waited_s += self._clock() - began_s
        return not self._is_closed
