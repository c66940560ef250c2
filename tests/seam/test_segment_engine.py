"""The base of engines that speak whole segments, with the smallest engine there can be.

`tests/engines` has what the real ones promise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.segment_driving import Driver, append, credit
from voiceagent_tts.core import Word
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.commands import Append, Cancel, Prepare, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Capabilities, Failed
from voiceagent_tts.seam.segment_engine import SegmentEngine, SegmentRow

BAD = "unspeakable"


@dataclass(frozen=True)
class Tone:
    """A segment whose audio is one sample for each character."""

    text: str
    segment_end: int
    words: Sequence[Word] = ()

    @property
    def is_silent(self) -> bool:
        return not self.text.strip()


class ToneEngine(SegmentEngine[SegmentRow[Tone]]):
    """Speaks tones, and remembers its texts."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        super().__init__(inbox, outbox, name="the test", max_rows=5)
        self.texts: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("test", "tones", False, ("segment",), ("en",), ("v",), self._max_rows)

    def _open_row(self, command: Submit) -> SegmentRow[Tone]:
        return SegmentRow(
            context=command.context, voice_name=command.voice, options=command.options
        )

    def _pieces(self, row: SegmentRow[Tone], command: Submit | Append) -> list[Tone]:
        if command.text == BAD:
            raise ValueError(BAD)
        self.texts.append(command.text)
        return [Tone(command.text, command.char_base + len(command.text))]

    def _prepare(self, command: Prepare) -> None:
        self.texts.append(f"prepare {command.voice}")

    def _make_audio(self) -> None:
        for row in self._speaking_rows():
            row.unsent, row.is_said = memoryview(bytes(2 * len(row.queue[0].text))), True


def tones() -> tuple[Driver, ToneEngine]:
    """The engine, and what drives it."""
    driver = Driver(ToneEngine)
    assert isinstance(driver.engine, ToneEngine)
    return driver, driver.engine


def test_text_reaches_the_engine_in_order() -> None:
    """Text of open contexts is added; that of others is dropped without an answer."""
    driver, engine = tones()
    commands = append(7, "Lost.", 0), append(1, " More.", 6, more=True), Prepare("v", "en")
    assert driver.run(driver.submit(1, "Hello.", more=True), *commands) == []
    assert engine.texts == ["Hello.", " More.", "prepare v"]


def test_one_context_fails_and_the_others_continue() -> None:
    """An unexpected error is an engine error of one context; its row is free."""
    driver, engine = tones()
    submits = driver.submit(1, "Hello.", more=True), driver.submit(2, BAD)
    (failed,) = driver.run(*submits)
    assert isinstance(failed, Failed)
    assert (failed.context, failed.code) == (2, ErrorCode.ENGINE_ERROR)
    assert [*engine._rows] == [1]
    with engine._failing(1):
        raise InvalidRequestError("no", code=ErrorCode.INVALID_PARAM)
    assert driver.events[-1] == Failed(1, ErrorCode.INVALID_PARAM, "no")
    assert engine.rows_used == 0


def test_a_new_context_of_a_number_has_a_row_of_its_own() -> None:
    """What works for the row that was cancelled sees that it is not open."""
    driver, engine = tones()
    driver.run(driver.submit(1, "Hello."))
    row = engine._rows[1]
    assert engine._is_open(row)
    driver.run(Cancel(1), driver.submit(1, "Hello."))
    assert not engine._is_open(row) and engine._is_open(engine._rows[1])


def test_listeners_come_before_files_and_silent_rows_before_sounding_ones() -> None:
    """Then the row whose playout ends first."""
    driver, engine = tones()
    for number in range(1, 6):
        options = SpeechOptions(is_batch=number == 1)
        driver.run(driver.submit(number, "Hello.", more=True, options=options))
    driver.run(credit(4, 1, playout_end=3.0), credit(5, 1, playout_end=2.0))
    ordered = engine._by_urgency(engine._rows.values())
    assert [row.context for row in ordered] == [2, 3, 5, 4, 1]
