"""The score of an interrupted reply: its history against the words that were heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.replies import REPLIES
from voiceagent_tts.plugins.bench.bargein.score import judge
from voiceagent_tts.text.words import split_words

REPLY = "One, two, three, four, five."
TEXTS = st.sampled_from([text for texts in REPLIES.values() for text in texts])


def heard_words(count: int, begun: int | None = None, finished: int | None = None) -> Heard:
    """The first `count` words as heard, and by default as begun and finished."""
    counts = (count if finished is None else finished, count, count if begun is None else begun)
    return Heard(*(frozenset(range(n)) for n in counts))


@given(text=TEXTS, data=st.data())
def test_a_history_of_the_words_heard_is_exact(text: str, data: st.DataObject) -> None:
    """A history with other words differs by the words between the two ends."""
    words = split_words(text)
    heard = data.draw(st.integers(0, len(words)))
    committed = data.draw(st.integers(0, len(words)))
    history = text[: words[committed - 1].char_end] if committed else ""
    verdict = judge(text, history, heard_words(heard))
    assert verdict.is_exact == (heard == committed)
    assert verdict.is_within_one == (abs(heard - committed) <= 1)
    assert verdict.is_dropped == (committed == 0 < heard)
    assert verdict.difference == committed - heard
    assert (verdict.lost, verdict.unspoken) == (
        max(0, heard - committed),
        max(0, committed - heard),
    )
    assert verdict.is_verbatim


@pytest.mark.parametrize(
    ("committed", "is_exact", "is_exact_either", "unspoken"),
    [
        ("One, two,", False, True, 0),  # without the word that was cut off
        ("One, two, three,", True, True, 0),  # with it
        # with a word of which a few samples were played
        ("One, two, three, four,", False, True, 0),
        ("One, two, three, four, five.", False, False, 1),
        ("one two three", True, True, 0),  # equal words in another spelling
        ("Two, three", False, False, 0),
        ("One, two, three, six", False, False, 1),
    ],
)
def test_the_word_at_the_cut_may_count_either_way(
    committed: str, is_exact: bool, is_exact_either: bool, unspoken: int
) -> None:
    """Two words are finished, a third is half heard, a fourth has just begun."""
    verdict = judge(REPLY, committed, heard_words(3, begun=4, finished=2))
    assert verdict.is_exact == is_exact
    assert verdict.is_exact_either == is_exact_either
    assert verdict.unspoken == unspoken
    assert verdict.is_verbatim == REPLY.startswith(committed)


def test_a_hole_in_the_history_is_found() -> None:
    """Words missing in the middle count as lost, even if the end is right."""
    verdict = judge(REPLY, "One, four,", heard_words(4))
    assert (verdict.lost, verdict.unspoken, verdict.is_within_one) == (2, 0, False)
