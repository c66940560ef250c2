from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.text.characters import CharacterTimes


def spread(words: list[WordTimestamp]) -> list[WordTimestamp]:
    """The characters of a context's first words."""
    return CharacterTimes().spread(words)


def test_characters_tile_their_word() -> None:
    """Characters follow each other without gaps from the word's start to its end."""
    rows = spread([WordTimestamp(Word("four", 10, 14), 2_400, 12_001, 1.0)])
    assert [row.word for row in rows] == [Word(c, 10 + i, 11 + i) for i, c in enumerate("four")]
    assert rows[0].start_sample == 2_400
    assert rows[-1].end_sample == 12_001
    for before, after in zip(rows, rows[1:], strict=False):
        assert before.end_sample == after.start_sample
    assert [row.is_exact for row in rows] == [True, False, False, False]


def test_white_space_inside_a_word_has_no_time() -> None:
    """A word with white space inside keeps its offsets; the white space gets no time."""
    rows = spread([WordTimestamp(Word("a -", 0, 3), 0, 300, 1.0)])
    assert [(row.word.text, row.word.char_start) for row in rows] == [("a", 0), ("-", 2)]


def test_an_unknown_end_stays_unknown() -> None:
    """Where a word's end is unknown, its characters have estimated starts and no ends."""
    rows = spread([WordTimestamp(Word("ab", 0, 2), 100, None, 0.5)])
    assert [row.end_sample for row in rows] == [None, None]
    assert rows[0].start_sample == 100 < rows[1].start_sample


@pytest.mark.parametrize("end_sample", [None, 9_000])
def test_characters_stay_before_the_next_word(end_sample: int | None) -> None:
    """Characters begin at most at the next word's start, even if their word ends after it."""
    word = WordTimestamp(Word("four", 0, 4), 1_000, end_sample, 1.0)
    following = WordTimestamp(Word("five", 5, 9), 3_000, None, 1.0)
    rows = spread([word, following])
    assert [row.start_sample for row in rows[:5]] == [1_000, 1_500, 2_000, 2_500, 3_000]
    assert rows[3].end_sample == end_sample
    assert rows[4].is_exact


def test_characters_stay_after_those_already_sent() -> None:
    """A word that would begin before characters already sent is moved and no longer exact."""
    times = CharacterTimes()
    before = times.spread([WordTimestamp(Word("wxyz", 0, 4), 0, 2_000, 1.0)])
    assert before[-1].start_sample == 1_500
    word = WordTimestamp(Word("ab", 5, 7), 1_000, 1_400, 1.0)
    rows = times.spread([word])
    assert [(row.start_sample, row.end_sample) for row in rows] == [(1_500, 1_500), (1_500, 1_500)]
    assert not any(row.is_exact for row in rows)
    later = replace(word, start_sample=1_500, end_sample=1_900)
    assert times.spread([later]) == spread([later])


WORD_TIMES = st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 5)), min_size=1, max_size=6)


@given(WORD_TIMES, st.data())
def test_better_times_keep_the_characters_in_order(
    given_words: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Words that are sent one by one, and moved from any of them on, stay in order in time."""
    times, sent, best = CharacterTimes(), list[WordTimestamp](), dict[Word, WordTimestamp]()
    first_sent: list[int] = []
    start, char = 0, 0
    for step, length in given_words:
        start += step
        end = data.draw(st.sampled_from([None, start + 3_000]))
        sent.append(WordTimestamp(Word("abcde"[:length], char, char + length), start, end, 0.5))
        char += length + 1
        new = times.spread(sent[-1:])
        first_sent += [each.start_sample for each in new]
        best |= {each.word: each for each in new}
        first = data.draw(st.integers(0, len(sent) - 1))
        earliest = sent[first - 1].start_sample if first else 0
        moves = data.draw(st.integers(-3_000, 3_000))
        sent[first:] = [
            replace(each, start_sample=max(earliest, each.start_sample + moves), end_sample=None)
            for each in sent[first:]
        ]
        start = sent[-1].start_sample
        best |= {each.word: each for each in times.spread(sent[first:])}
    starts = [each.start_sample for each in best.values()]
    assert starts == sorted(starts) and first_sent == sorted(first_sent)
