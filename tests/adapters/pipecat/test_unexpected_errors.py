"""An unexpected error in a task of the service is reported, and costs one turn at most."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pipecat.frames.frames import ErrorFrame

from testbed.scripted_pipecat import Agent, Loudspeaker, agent, reply
from testbed.scripted_server import Script, Step
from testbed.scripted_time import run_scripted
from voiceagent_tts.adapters.pipecat.output import Output
from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.turn import PipecatTurn
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError

SPOKEN = Script((Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0, 300, 600)),), end_s=0.1)
SILENT = Script((), end_s=60.0)
DIES = Script((), end_s=0.1, failure=EngineError("the engine process has ended"))


def failing(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """`function`, whose call of this number fails."""
    calls = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RuntimeError("what is spoken")
        return function(*args, **options)

    return counted


def errors_of(talk: Agent) -> list[str]:
    """The errors of the service from now on."""
    errors: list[str] = []

    @talk.service.event_handler("on_error")
    async def on_error(_: object, error: ErrorFrame) -> None:
        errors.append(error.error)

    return errors


@pytest.mark.parametrize(
    ("owner", "name", "call", "task"),
    [
        (Output, "pop_due", 8, "let_frames_leave"),
        (Playout, "chunk_ended", 2, "receive_report"),
        (PipecatTurn, "note_answer", 2, "receive_next_event"),
        (PipecatTurn, "silent_s", 2, "check_for_silence"),
    ],
)
def test_a_task_goes_on(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int, task: str
) -> None:
    """The next reply is in the history, and a silent server is noticed after that."""
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), call))

    async def run() -> tuple[list[str], list[str]]:
        async with agent(SPOKEN, Loudspeaker(40), response_timeout_s=1.0) as talk:
            errors = errors_of(talk)
            for text in ("a b c", "d e f"):
                await talk.say(reply(text))
                await asyncio.sleep(3.0)
            talk.server.script = SILENT
            await talk.say(reply("g h i"))
            await asyncio.sleep(5.0)
            return talk.messages, errors

    messages, errors = run_scripted(run())
    assert errors[0] == f"unexpected RuntimeError in {task}"
    assert messages[-1] == "d e f"
    assert "no answer from the server" in errors[-1]


def test_a_turn_that_cannot_be_resumed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one error; the next one is spoken."""
    resumed = failing(PipecatTurn.open_context, 2)
    monkeypatch.setattr(PipecatTurn, "open_context", resumed)

    async def run() -> tuple[list[str], list[str]]:
        async with agent(SPOKEN, Loudspeaker(40), first=[DIES]) as talk:
            errors = errors_of(talk)
            for frame in reply("a b c"):
                await talk.worker.queue_frame(frame)
            await asyncio.sleep(3.0)
            await talk.say(reply("d e f"))
            await asyncio.sleep(3.0)
            return talk.messages, errors

    messages, errors = run_scripted(run())
    assert messages == ["d e f"]
    assert errors == ["internal: unexpected RuntimeError in a turn that was resumed"]
