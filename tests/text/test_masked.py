"""Segments with readings, which are spoken in parts of a bounded length."""

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.text.masked import parts_by_said
from voiceagent_tts.text.readings import said


def test_a_segment_is_cut_by_what_it_says() -> None:
    """125 written letters of 200 each are spoken one by one; the parts joined are the segment."""
    readings = tuple(Reading(at, at + 1, "b" * 200, "a" * 150) for at in range(10, 260, 2))
    segment = Segment("x " * 125, 10, readings)
    parts = list(parts_by_said(segment, 250))
    assert "".join(part.text for part in parts) == segment.text
    assert sum((part.readings for part in parts), ()) == readings
    assert max(len(said(part.text, part.char_start, part.readings).text) for part in parts) <= 250
