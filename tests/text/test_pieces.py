import pytest

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.text.pieces import split_pieces
from voiceagent_tts.text.words import split_words


@pytest.mark.parametrize(
    "text",
    [
        "One sentence, as the server sends it.",
        "Two. Sentences! " * 30,
        "x" * 5_000,
        "你好，世界。" * 100,
        " ",
        "...",
    ],
)
def test_pieces_have_all_words_of_a_segment(text: str) -> None:
    """Every word is in one piece, in order, and the last piece ends the segment."""
    pieces = list(split_pieces(Segment(text, 10)))
    assert [word for piece in pieces for word in piece.words] == split_words(text, 10)
    assert [piece.segment_end for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].segment_end == 10 + len(text)
    assert all(len(piece.said.text) <= 250 for piece in pieces)


def test_a_reading_is_said_where_its_span_begins() -> None:
    """A piece says the readings of its own spans."""
    text = "A word. " + "b" * 5 + "."
    first, second = split_pieces(Segment(text, 0, (Reading(8, 13, "nginx"),)))
    assert first.said.text == "A word."
    assert second.said.text.strip() == "nginx."
