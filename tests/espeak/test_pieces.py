from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.espeak.pieces import MAX_PIECE_CHARS, split_pieces
from voiceagent_tts.text.words import split_words


def test_a_segment_is_cut_after_its_clauses() -> None:
    """A piece does not end after a very short clause or a mark that may end an abbreviation."""
    pieces = split_pieces(Segment("Well, dear Adm. Smith, it is 3,500 at 5:30, no? Yes.", 0), "en")
    assert [piece.said.text for piece in pieces] == [
        "Well, dear Adm. Smith,",
        "it is 3,500 at 5 30,",
        "no? Yes.",
    ]
    assert all(piece.ends_clause for piece in pieces)
    assert [piece.segment_end for piece in pieces] == [None, None, 52]


@given(
    st.text(
        st.sampled_from("ab ,.*\n\u4f60\u3002\u3042\u0301\U0001f600") | st.characters(),
        max_size=900,
    ),
    st.integers(0, 10**6),
)
def test_pieces_tile_the_segment(text: str, base: int) -> None:
    """Every word is in one piece, in order; no piece is too long; one ends the segment."""
    pieces = split_pieces(Segment(text * 3, base), "en")
    words = split_words(text * 3, base)
    assert [word for piece in pieces for word in piece.words] == words
    ends = [piece.segment_end for piece in pieces]
    assert ends == [None] * (len(pieces) - 1) + [base + len(text) * 3]
    offsets = [offset for piece in pieces for offset in piece.said.offsets]
    assert offsets == sorted(offsets)
    spans = [piece.said.offsets for piece in pieces if piece.said.offsets]
    assert all(span[-1] - span[0] < MAX_PIECE_CHARS for span in spans)


def test_numbers_and_signs_are_said_as_people_say_them() -> None:
    (piece,) = split_pieces(Segment("5 - 3 is $2 in 1984", 10), "en-us")
    assert piece.said.text == "5 minus 3 is 2 dollars in nineteen eighty-four"
    assert [word.text for word in piece.words] == ["5 -", "3", "is", "$2", "in", "1984"]
    said = [
        "".join(piece.said.text[place] for place in piece.said.range_of(word)).strip()
        for word in piece.words
    ]
    assert said == ["5 minus", "3", "is", "2 dollars", "in", "nineteen eighty-four"]


def test_a_date_that_is_cut_into_pieces_is_one_date() -> None:
    pieces = split_pieces(Segment("The meeting was on May 3, 2026, at noon.", 0), "en-us")
    assert [piece.said.text.strip() for piece in pieces] == [
        "The meeting was on May third,",
        "twenty twenty-six, at noon.",
    ]


def test_a_piece_is_limited_by_what_is_said() -> None:
    """Readings and numbers are many times as long as what is written; one call must be short."""
    readings = tuple(Reading(at, at + 1, "word " * 40) for at in range(0, 20, 2))
    for segment in (Segment("x " * 10, 0, readings), Segment("1234567890 " * 20, 0)):
        pieces = split_pieces(segment, "en")
        assert max(len(piece.said.text) for piece in pieces) <= MAX_PIECE_CHARS
        assert [word for piece in pieces for word in piece.words] == split_words(segment.text, 0)
        assert [piece.segment_end for piece in pieces if piece.segment_end] == [segment.char_end]
        assert not any(piece.said.text.startswith("ord") for piece in pieces)
