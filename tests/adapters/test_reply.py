"""The loop that speaks a turn, without a host, and the settings of its user."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.adapters import reply as reply_module
from voiceagent_tts.adapters.reply import Choice, Choices, Mark, Reply
from voiceagent_tts.adapters.turn import Turn, TurnWord
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.errors import ConnectionLostError, EngineError, InvalidRequestError
from voiceagent_tts.protocol.client_connection import OpenOptions


class Unconnected(Reply[Turn]):
    """A reply whose first attempt to connect fails for a moment, and whose second one for good."""

    def __init__(self) -> None:
        choices = Choices[None](None)
        super().__init__(Turn("turn", {}), choices, choices.current, timeout_s=1.0)
        self.attempts = 0

    def _open_options(self, settings: Any) -> OpenOptions:
        return {}

    async def _report_refusal(self, error: InvalidRequestError) -> None: ...
    async def _play(self, pcm: bytes) -> None: ...
    async def _expect_words(self, words: list[WordTimestamp]) -> None: ...
    async def _add_words(self, words: list[TurnWord]) -> None: ...
    async def _end(self) -> None: ...
    async def _fail(self, error: Exception) -> None: ...

    async def _connect(self) -> ClientSocket:
        self.attempts += 1
        raise ConnectionLostError("no connection") if self.attempts == 1 else EngineError("gone")

    def _wait_to_resume_s(self, error: Exception, *, has_audio: bool) -> float | None:
        return 0.05 if isinstance(error, ConnectionLostError) else None


async def test_an_attempt_that_is_due_while_an_item_is_handled_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer may end a millisecond early, and the clock goes on between two readings of it."""
    reply = Unconnected()
    reply.send("Hello there. ")
    speaking = asyncio.create_task(reply.speak())
    await until(lambda: reply.attempts == 1, "an attempt has failed")
    due_s = reply._resume_at_s - reply_module._ROUNDING_S
    readings = iter((due_s - 2e-6, due_s - 1e-6))
    clock = SimpleNamespace(monotonic=lambda: next(readings, due_s + 2e-6))
    monkeypatch.setattr(reply_module, "time", clock)
    reply.send(Mark.END)
    async with asyncio.timeout(PATIENCE_S):
        await speaking
    assert reply.attempts == 2


def test_the_newest_settings_that_worked_stay() -> None:
    """A part in an older voice may still be played after the first of a newer one."""
    choices = Choices("first")
    first = choices.current
    choices.change("second")
    choices.note_working(choices.current)
    choices.note_working(first)
    choices.change("wrong")
    wrong = choices.current
    assert _settings(choices.replace(wrong)) == "second" == choices.current.settings
    assert choices.replace(choices.current) is None


def _settings(choice: Choice[str] | None) -> str | None:
    return choice and choice.settings
