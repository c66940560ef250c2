import pytest

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.text.characters import spread_characters


def test_characters_tile_their_word() -> None:
    """Characters follow each other without gaps from the word's start to its end."""
    rows = spread_characters([WordTimestamp(Word("four", 10, 14), 2_400, 12_001, 1.0)])
    assert [row.word for row in rows] == [Word(c, 10 + i, 11 + i) for i, c in enumerate("four")]
    assert rows[0].start_sample == 2_400
    assert rows[-1].end_sample == 12_001
    for before, after in zip(rows, rows[1:], strict=False):
        assert before.end_sample == after.start_sample
    assert [row.is_exact for row in rows] == [True, False, False, False]


def test_white_space_inside_a_word_has_no_time() -> None:
    """A word with white space inside keeps its offsets; the white space gets no time."""
    rows = spread_characters([WordTimestamp(Word("a -", 0, 3), 0, 300, 1.0)])
    assert [(row.word.text, row.word.char_start) for row in rows] == [("a", 0), ("-", 2)]


def test_an_unknown_end_stays_unknown() -> None:
    """Where a word's end is unknown, its characters have estimated starts and no ends."""
    rows = spread_characters([WordTimestamp(Word("ab", 0, 2), 100, None, 0.5)])
    assert [row.end_sample for row in rows] == [None, None]
    assert rows[0].start_sample == 100 < rows[1].start_sample


@pytest.mark.parametrize("end_sample", [None, 9_000])
def test_characters_stay_before_the_next_word(end_sample: int | None) -> None:
    """Characters begin at most at the next word's start, even if their word ends after it."""
    word = WordTimestamp(Word("four", 0, 4), 1_000, end_sample, 1.0)
    following = WordTimestamp(Word("five", 5, 9), 3_000, None, 1.0)
    rows = spread_characters([word, following])
    assert [row.start_sample for row in rows[:5]] == [1_000, 1_500, 2_000, 2_500, 3_000]
    assert rows[3].end_sample == end_sample
    assert rows[4].is_exact


def test_characters_stay_after_those_already_sent() -> None:
    """A word that would begin before characters already sent is moved and no longer exact."""
    word = WordTimestamp(Word("ab", 0, 2), 1_000, 1_400, 1.0)
    rows = spread_characters([word], earliest=1_500)
    assert [(row.start_sample, row.end_sample) for row in rows] == [(1_500, 1_500), (1_500, 1_500)]
    assert not any(row.is_exact for row in rows)
    assert spread_characters([word], earliest=1_000) == spread_characters([word])
