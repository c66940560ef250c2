"""Rows of engines that speak whole segments, without an engine."""

from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.commands import (
    Append,
    Cancel,
    Command,
    Credit,
    Prepare,
    SpeechOptions,
    Submit,
)
from voiceagent_tts.seam.events import Cancelled, Done, Failed
from voiceagent_tts.seam.segment_rows import SegmentRow, SegmentRows

BAD = "unspeakable"


class Driver:
    """Rows whose texts are remembered, and whose events are collected."""

    def __init__(self, max_rows: int = 2) -> None:
        self.events: list[Any] = []
        self.texts: list[str] = []
        self._commands: list[Command] = []
        self.rows = SegmentRows(
            self._take, self.events.append,
            max_rows=max_rows, engine_name="the test", open_row=self._open, add_text=self._add,
            prepare=lambda command: self.texts.append(f"prepare {command.voice}"),
        )  # fmt: skip

    def handle(self, *commands: Command) -> list[Any]:
        """Handle commands; returns the events."""
        self._commands += commands
        self.events.clear()
        self.rows.handle_commands()
        return list(self.events)

    def _take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def _open(self, command: Submit) -> SegmentRow:
        return SegmentRow(
            context=command.context, voice_name=command.voice, options=command.options
        )

    def _add(self, row: SegmentRow, command: Submit | Append) -> None:
        if command.text == BAD:
            raise ValueError(BAD)
        self.texts.append(command.text)
        row.expects_text = command.more


def submit(context: int, text: str = "Hello.", *, more: bool = True, batch: bool = False) -> Submit:
    """A command that opens a context."""
    return Submit(
        context=context, text=text, char_base=0, more=more, voice="v", language="en",
        options=SpeechOptions(is_batch=batch),
    )  # fmt: skip


def append(context: int, text: str = " More.", *, more: bool = True) -> Append:
    """A command with a context's next text."""
    return Append(context=context, text=text, char_base=6, more=more, language="en")


def test_text_reaches_the_engine_in_order() -> None:
    """Text of open contexts is added; that of others is dropped without an answer."""
    driver = Driver()
    assert driver.handle(submit(1), append(7), append(1), Prepare("v", "en")) == []
    assert driver.texts == ["Hello.", " More.", "prepare v"]


def test_one_context_fails_and_the_others_continue() -> None:
    """An unexpected error is an engine error of one context; its row is free."""
    driver = Driver()
    (failed,) = driver.handle(submit(1), submit(2, BAD))
    assert isinstance(failed, Failed)
    assert (failed.context, failed.code) == (2, ErrorCode.ENGINE_ERROR)
    assert [row.context for row in driver.rows] == [1]
    with driver.rows.failing(1):
        raise InvalidRequestError("no", code=ErrorCode.INVALID_PARAM)
    assert driver.events[-1] == Failed(1, ErrorCode.INVALID_PARAM, "no")
    assert len(driver.rows) == 0


def test_refusals_have_codes() -> None:
    """A context that is open, a row too many, and text after the last text."""
    driver = Driver(max_rows=1)
    driver.handle(submit(1, more=False))
    (overloaded,) = driver.handle(submit(2))
    assert overloaded.code is ErrorCode.OVERLOADED
    assert overloaded.message == "all 1 rows of the test are in use"
    (closed,) = driver.handle(append(1))
    assert (closed.context, closed.code) == (1, ErrorCode.CONTEXT_CLOSED)
    driver.handle(submit(1))
    (exists,) = driver.handle(submit(1))
    assert exists.code is ErrorCode.CONTEXT_EXISTS


def test_every_cancel_is_answered() -> None:
    """Also the second one, and that of a context that was never open."""
    driver = Driver()
    driver.handle(submit(1))
    (row,) = driver.rows
    assert driver.handle(Cancel(1), Cancel(1)) == [Cancelled(1), Cancelled(1)]
    assert row not in driver.rows
    driver.handle(submit(1))
    assert row not in driver.rows, "the new context has a row of its own"


def test_credit_and_audio_move_the_row() -> None:
    """A row has credit until its audio reaches it; the end of its audio is reported."""
    driver = Driver()
    driver.handle(submit(1), Credit(1, samples_wanted=24_000, playout_end=10.0))
    (row,) = driver.rows
    assert row.has_credit
    chunk = row.append(bytes(2 * 24_000))
    assert (chunk.start_sample, row.end_sample, row.has_credit) == (0, 24_000, False)
    driver.rows.end(row)
    assert driver.events[-1] == Done(1, 24_000)


def test_listeners_come_before_files_and_silent_rows_before_sounding_ones() -> None:
    """Then the row whose playout ends first."""
    driver = Driver(max_rows=5)
    driver.handle(*(submit(number, batch=number == 1) for number in range(1, 6)))
    driver.handle(Credit(4, 3.0, samples_wanted=1), Credit(5, 2.0, samples_wanted=1))
    for row in driver.rows:
        if row.context in (4, 5):
            row.append(bytes(2 * 2_400))
    ordered = sorted(driver.rows, key=lambda row: row.urgency)
    assert [row.context for row in ordered] == [2, 3, 5, 4, 1]
