from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.texts import agent_text, any_text, chunked
from voiceagent_tts.text import cleaning as module
from voiceagent_tts.text.feed import Fed, TextFeed
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import next_word_start


def spoken(text: str, run_chars: int = 10_000) -> list[str]:
    feed = TextFeed(run_chars)
    return runs(feed.push(text) + feed.finish())


def runs(fed: list[Fed]) -> list[str]:
    texts = [""]
    for part in fed:
        texts[-1] += part.spoken
        if part.ends_run:
            texts.append("")
    assert texts.pop() == ""
    return texts


def test_words_come_one_word_behind() -> None:
    feed = TextFeed(1000)
    assert feed.push("Hel") == []
    assert feed.push("lo") == []
    assert feed.push(" ") == [Fed("Hello", 5, False)]
    assert feed.push("there") == []
    assert feed.finish() == [Fed(" there", 11, True)]


def test_runs_end_at_sentence_ends() -> None:
    """A run has at least `run_chars` and ends with a sentence, not with an abbreviation."""
    text = "Dr. Smith came. He sat down and spoke to us. Then he left, at 3.5 p. m. or so. Bye."
    assert spoken(text, run_chars=12) == [
        "Dr. Smith came.",
        "He sat down and spoke to us.",
        "Then he left, at 3.5 p. m. or so.",
        "Bye.",
    ]


def test_a_run_without_sentences_ends_too() -> None:
    """The length of a run is bounded for every text."""
    for run_chars in (1, 100, 300):
        assert max(map(len, spoken("word " * 1000, run_chars))) < 1_300
        assert max(map(len, spoken("好" * 4000, run_chars))) < 1_300


@pytest.mark.parametrize(
    "sentences",
    [
        ["Yes, of course I can help you with that.", "What would you like to hear first?"],
        ["今天天气很好，我们去公园散步吧。", "你觉得怎么样？"],
        ["Ich habe, soweit ich das beurteilen kann, nichts davon gesehen.", "Und du?"],
    ],
)
def test_a_run_for_each_sentence_ends_inside_none(sentences: list[str]) -> None:
    """A clone with a long reference speaks so: it can start with its first sentence."""
    assert spoken(" ".join(sentences), run_chars=1) == sentences


@given(any_text().flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
def test_any_chunking_gives_the_same_runs(case: tuple[str, list[str]]) -> None:
    text, deltas = case
    feed = TextFeed(40)
    fed = [part for delta in deltas for part in feed.push(delta)] + feed.finish()
    whole = TextFeed(40)
    expected = whole.push(text) + whole.finish()
    assert fed == expected
    ends = [part.char_end for part in fed]
    assert ends == sorted(ends)
    assert ends[-1] == len(text)


@given((agent_text() | any_text()).flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
@example(("One 🎉 25 €", list("One 🎉 25 €")))
@example(("# Title\n- Tom & Jerry\n- 5 - 3", list("# Title\n- Tom & Jerry\n- 5 - 3")))
@example(
    ('a [b] <a href="x y">c</a> [d e](u "v w")', ['a [b] <a href="x y">c</a> [d', ' e](u "v w")'])
)
@example(("| Tea | 3 |\n|---|---|\n| Milk | 4 |", list("| Tea | 3 |\n|---|---|\n| Milk | 4 |")))
def test_a_run_is_spoken_as_a_segment_would_be(case: tuple[str, list[str]]) -> None:
    """The words of each run are those of its text as a whole, as segment feeding speaks it."""
    text, deltas = case
    feed = TextFeed(40)
    fed = [part for delta in deltas for part in feed.push(delta)] + feed.finish()
    ends = [part.char_end for part in fed if part.ends_run]
    assert runs(fed) == [said(text[a:b], a, ()).text for a, b in pairwise([0, *ends])]


@given(
    st.lists(st.sampled_from(["ab" * 300, "好", " ", "[x](", "\n" * 700, ". "]), max_size=8),
    st.data(),
)
def test_long_words_are_fed_in_parts(parts: list[str], data: st.DataObject) -> None:
    """A word of any length comes in parts of at most 1,000 characters, however it is written."""
    text = "".join(parts)
    whole, feed = TextFeed(40), TextFeed(40)
    expected = whole.push(text) + whole.finish()
    deltas = data.draw(st.lists(st.integers(1, 400), max_size=6))
    fed, at = list[Fed](), 0
    for chars in [*deltas, len(text)]:
        fed += feed.push(text[at : at + chars])
        at += chars
    fed += feed.finish()
    assert fed == expected
    assert max(part.spoken.count("a") + part.spoken.count("b") for part in fed) <= 1000
    assert "".join(part.spoken for part in fed).count("b") == text.count("b")


def test_text_before_a_bracket_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bracket has only what follows it scanned again, however long the white space before it."""
    scanned_chars = 0

    def counting(text: str, start: int) -> int | None:
        nonlocal scanned_chars
        scanned_chars += len(text) - start
        return next_word_start(text, start)

    monkeypatch.setattr(module, "next_word_start", counting)
    feed, label = TextFeed(300), "[" + "a" * 99
    for character in " " * 500 + label:
        assert feed.push(character) == []
    assert scanned_chars <= 2 * (500 + sum(range(len(label) + 1)))


def test_white_space_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long white space is, each delta of it is examined once."""
    scanned_chars = 0

    def counting(text: str, start: int) -> int:
        nonlocal scanned_chars
        visible = first_visible(text, start)
        scanned_chars += visible - start
        return visible

    first_visible = module._first_visible  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(module, "_first_visible", counting)
    feed = TextFeed(300)
    for _ in range(1000):
        assert feed.push("\n   ") == []
    assert scanned_chars <= 4000
