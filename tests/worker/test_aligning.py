"""An engine and an aligner in one process: who gets which command, and who goes first."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.core import AudioChunk, Word
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.aligner_messages import Aligned, Expect, Finish, Follow
from voiceagent_tts.seam.commands import Cancel, Flush
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
)
from voiceagent_tts.worker import aligning
from voiceagent_tts.worker.aligning import AligningEngine

CAPABILITIES = Capabilities("fake", "fake", False, ("token",), ("en",), ("a",), 4)
AUDIO = AudioStep((ContextAudio(1, AudioChunk(0, bytes(4))),))
FOLLOW = (Follow(1, "en", "v"), Expect(1, (Word("a", 0, 1),)))


class FakeEngine:
    """Records its commands; has time or not, as the test says."""

    capabilities = CAPABILITIES
    rows_used = 2
    metrics = {"load_ratio": 0.5}

    def __init__(self, inbox: Callable[[], list[Any]], outbox: Callable[[Any], None]) -> None:
        self._inbox, self._outbox = inbox, outbox
        self.received = list[Any]()
        self.has_time = True
        self.wait_s: float | None = 0.0

    def step(self) -> float | None:
        """Answer cancels."""
        for command in self._inbox():
            self.received.append(command)
            if isinstance(command, Cancel):
                self._outbox(Cancelled(command.context))
        return self.wait_s

    def close(self) -> None:
        """Nothing to release."""


class FakeSessions:
    """Records its commands, and answers as an aligner does; each step is let through by `gate`."""

    def __init__(self, inbox: Callable[[], list[Any]], outbox: Callable[[Any], None]) -> None:
        self._inbox, self._outbox = inbox, outbox
        self.received = list[Any]()
        self.stepped, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.is_closed = threading.Event()

    def step(self) -> float | None:
        """Answer every command that has an answer."""
        self.stepped.set()
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        for command in self._inbox():
            self.received.append(command)
            match command:
                case AudioStep():
                    self._outbox(Aligned(1, (), (), 2))
                case Finish(context):
                    self._outbox(Done(context, 2))
                case Cancel(context):
                    self._outbox(Cancelled(context))
                case _:
                    pass
        return None

    def close(self) -> None:
        """Record the end."""
        self.is_closed.set()


class ScriptedClock:
    """A clock that stands still between changes, and that tells when it was read."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.was_read = threading.Event()

    def __call__(self) -> float:
        self.was_read.set()
        return self.now_s


class Both:
    """An engine with an aligner, and what they sent."""

    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.commands, self.sent = list[Any](), list[Any]()
        self.engine: FakeEngine
        self.sessions: FakeSessions
        self.both = AligningEngine(
            self._make_engine,
            self._make_sessions,
            self._take,
            self.sent.append,
            "on cuda:0: why",
            self.clock,
        )

    def _make_engine(self, inbox: Any, outbox: Any) -> FakeEngine:
        self.engine = FakeEngine(inbox, outbox)
        return self.engine

    def _make_sessions(self, inbox: Any, outbox: Any) -> FakeSessions:
        self.sessions = FakeSessions(inbox, outbox)
        return self.sessions

    def _take(self) -> list[Any]:
        commands, self.commands = self.commands, []
        return commands

    def step(self, *commands: Any) -> float | None:
        """Step the engine with these commands."""
        self.commands += commands
        return self.both.step()

    def until(self, count: int) -> list[Any]:
        """Step until so many events have been sent; return them."""
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.001)):
            if len(self.sent) >= count:
                break
            self.step()
            pause.wait(0.001)
        assert len(self.sent) == count, self.sent
        return self.sent


@pytest.fixture
def both() -> Iterator[Both]:
    """An engine and an aligner, ended after the test."""
    made = Both()
    yield made
    made.sessions.gate.set()
    made.both.close()
    made.both.close()
    assert made.sessions.is_closed.wait(PATIENCE_S)


def test_commands_go_to_the_one_they_are_for(both: Both) -> None:
    """The aligner gets words and audio, the engine the rest; a cancel goes by its context."""
    end = SegmentEnd(1, 1, 2)
    both.step(*FOLLOW, Flush(2), AUDIO, end, Cancel(2))
    assert both.until(2) == [Cancelled(2), Aligned(1, (), (), 2)]
    assert both.engine.received == [Flush(2), Cancel(2)]
    assert both.sessions.received == [*FOLLOW, AUDIO, end]
    both.step(Cancel(1))
    both.until(3)
    both.step(Cancel(1), Follow(3, "en", "v"), Finish(3))
    both.until(5)
    assert both.engine.received[2:] == [Cancel(1)], "the aligner has forgotten it"
    assert both.sent[2:] == [Cancelled(1), Cancelled(1), Done(3, 2)]


def test_it_reports_as_the_engine_with_an_aligner(both: Both) -> None:
    """Capabilities and metrics are the engine's, and say that there is an aligner."""
    assert both.both.capabilities.aligner == "on cuda:0: why"
    assert both.both.capabilities.engine == "fake"
    assert both.both.rows_used == 2
    both.sessions.gate.clear()
    both.step(*FOLLOW, AUDIO)
    assert both.sessions.stepped.wait(PATIENCE_S)
    both.clock.now_s += 0.25
    both.sessions.gate.set()
    both.until(1)
    both.both.close()  # the pass counts a moment after its answer
    metrics = both.both.metrics
    assert metrics["load_ratio"] == 0.5
    assert metrics["aligner_steps_total"] == 1
    assert metrics["aligner_busy_seconds_total"] == 0.25


def test_a_pass_waits_for_listeners_in_a_hurry(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the engine has no time, no pass begins; it begins once the engine has time."""
    monkeypatch.setattr(aligning, "LONGEST_WAIT_S", PATIENCE_S)
    both.engine.has_time = False
    both.step()
    both.clock.was_read.clear()
    both.step(*FOLLOW, AUDIO)
    assert both.clock.was_read.wait(PATIENCE_S), "the pass does not wait"
    assert not both.sessions.stepped.wait(0.05)
    both.clock.now_s += 0.05
    both.engine.has_time = True
    both.until(1)
    both.both.close()
    assert both.both.metrics["aligner_waited_seconds_total"] == 0.05


def test_a_pass_does_not_wait_for_ever(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit a pass begins although listeners are in a hurry."""
    monkeypatch.setattr(aligning, "LONGEST_WAIT_S", 0.01)
    both.engine.has_time = False
    both.step()
    both.step(*FOLLOW, AUDIO)
    assert both.until(1) == [Aligned(1, (), (), 2)]


def test_an_engine_without_work_lets_passes_begin(both: Both) -> None:
    """With nothing to say nobody is in a hurry; answers are looked for until the last one."""
    both.engine.has_time, both.engine.wait_s = False, None
    assert both.step() is None
    both.sessions.gate.clear()
    assert both.step(*FOLLOW, AUDIO) == pytest.approx(0.005)
    assert both.sessions.stepped.wait(PATIENCE_S)
    both.sessions.gate.set()
    both.until(1)


def test_the_engine_steps_while_a_pass_runs(both: Both) -> None:
    """A pass that takes long holds up neither steps nor the engine's answers."""
    both.sessions.gate.clear()
    both.step(*FOLLOW, AUDIO)
    assert both.sessions.stepped.wait(PATIENCE_S)
    for context in range(10, 20):
        both.step(Cancel(context))
    assert both.sent == [Cancelled(context) for context in range(10, 20)]


def test_an_aligner_that_fails_leaves_the_engine_alone(both: Both) -> None:
    """Its contexts fail, also later ones; the engine goes on."""
    both.sessions.error = ValueError("a word of the text")
    both.step(*FOLLOW)
    (failed,) = both.until(1)
    assert isinstance(failed, Failed)
    assert (failed.context, failed.code) == (1, ErrorCode.ENGINE_ERROR)
    assert "word of the text" not in failed.message
    both.step(Follow(5, "en", "v"), Cancel(9))
    assert {type(event) for event in both.until(3)[1:]} == {Failed, Cancelled}
    assert both.step() == 0.0, "nothing more to wait for"
