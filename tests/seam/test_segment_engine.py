"""The base of engines that speak whole segments, with the embedded voice.

`tests/engines` has what every such engine promises.
"""

import pytest

from testbed.segment_driving import Driver, credit, of_type, words_of
from voiceagent_tts.core import Segment
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import Cancelled, Done, Failed
from voiceagent_tts.text.pieces import TextPiece

BAD = "unspeakable"


def test_a_text_that_fails_unexpectedly_ends_its_context_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def split(segment: Segment, language: str) -> list[TextPiece]:
        if segment.text == BAD:
            raise ValueError(BAD)
        return split_pieces(segment, language)

    monkeypatch.setattr("voiceagent_tts.espeak.engine.split_pieces", split)
    driver = Driver()
    events = driver.run(driver.submit(1, BAD), driver.submit(2, "Hello."), credit(2))
    (failed,) = of_type(Failed, events)
    assert (failed.context, failed.code) == (1, ErrorCode.ENGINE_ERROR)
    assert BAD not in failed.message
    assert [done.context for done in of_type(Done, events)] == [2]
    assert driver.engine.rows_used == 0


def test_a_new_context_of_a_number_has_a_row_of_its_own() -> None:
    """It comes while the one that was cancelled is spoken, of which nothing more is heard."""
    driver = Driver()
    driver.send(driver.submit(1, "This is another text, which is much longer."), credit(1))
    again = driver.submit(1, "Hello.")
    driver.send(Cancel(1), again, credit(1), after_inbox_calls=1)
    driver.run()
    after = driver.events[driver.events.index(Cancelled(1)) + 1 :]
    assert [each.word.text for each in words_of(after, 1)] == ["Hello."]
    assert isinstance(after[-1], Done)
