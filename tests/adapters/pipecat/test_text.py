"""Text through Pipecat: clauses are passed on early, and words keep their white space."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecat.frames.frames import AggregatedTextFrame, TTSTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from voiceagent_tts.adapters.pipecat.text import ClauseAggregator, VerbatimText, joint, without_end
from voiceagent_tts.text.punctuation import SENTENCE_ENDS, last_mark
from voiceagent_tts.text.words import is_spoken

TEXTS = st.text(alphabet="ab Z.,!?\n\t 「」你。、好$4é😊-", max_size=120)


async def pieces_of(chunks: Iterable[str], *, by_token: bool = False) -> list[str]:
    """The pieces that the aggregator passes on for the `chunks` of one reply."""
    aggregator = ClauseAggregator(by_token=by_token)
    pieces = [piece.text for chunk in chunks async for piece in aggregator.aggregate(chunk)]
    rest = await aggregator.flush()
    return pieces if rest is None else [*pieces, rest.text]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 120)))
async def test_clauses_are_the_text_however_it_was_chunked(text: str, cuts: list[int]) -> None:
    """The pieces joined are the text, and do not depend on the chunks."""
    borders = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    chunks = [text[start:end] for start, end in zip(borders, borders[1:], strict=False)]
    pieces = await pieces_of(chunks)
    assert "".join(pieces) == text
    assert pieces == await pieces_of(text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello. How are you?", ["Hello. ", "How are you?"]),
        ("Well, yes.\n\nNo.", ["Well, ", "yes.\n", "\nNo."]),
        ("I think that it is so", ["I think that ", "it is so"]),
        ("It costs 3.5 or 1,000 euros.", ["It costs 3.5 ", "or 1,000 euros."]),
        ("你好。「再见。」好", ["你好。", "「再见。」", "好"]),
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("... well", ["... well"]),
    ],
)
async def test_a_clause_leaves_with_the_white_space_after_it(text: str, pieces: list[str]) -> None:
    """A clause, or the first two or three words, is passed on without the text after it."""
    assert await pieces_of(text) == pieces


@given(text=TEXTS, cuts=st.lists(st.integers(0, 120)))
async def test_tokens_are_the_text_however_it_was_chunked(text: str, cuts: list[int]) -> None:
    """The pieces joined are the text, and none is a symbol alone."""
    borders = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    chunks = [text[start:end] for start, end in zip(borders, borders[1:], strict=False)]
    pieces = await pieces_of(chunks, by_token=True)
    assert "".join(pieces) == text
    assert all(is_spoken(piece) or last_mark(piece) in SENTENCE_ENDS for piece in pieces[:-1])


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        (["Mon", "day", " and", " more"], ["Mon", "day", " and", " more"]),
        (["Done", ".", " ", "Next"], ["Done", ".", " Next"]),
        (["**", "Sure", "!", "**", " Here"], ["**Sure", "!", "** Here"]),
        (["😊", " two", " 😊", " <", " 3"], ["😊 two", " 😊 < 3"]),
        (["你", "好", "，", "再"], ["你", "好", "，再"]),
    ],
)
async def test_a_token_leaves_at_once(tokens: list[str], pieces: list[str]) -> None:
    """A symbol waits for a word."""
    assert await pieces_of(tokens, by_token=True) == pieces


async def test_an_interruption_forgets_the_unfinished_clause() -> None:
    """Text of an interrupted reply does not appear in the next one."""
    aggregator = ClauseAggregator()
    assert [piece async for piece in aggregator.aggregate("Never")] == []
    await aggregator.handle_interruption()
    assert aggregator.text.text == ""
    assert await aggregator.flush() is None


def spoken(said: VerbatimText, *segments: list[str]) -> str:
    """The words of `segments` with their spaces; each segment is announced as its words joined."""
    joined = ""
    for words in segments:
        segment = AggregatedTextFrame("".join(words), "sentence")
        said.announce(segment, continues=False)
        for word in words:
            frame = word_frame(word, segment)
            said.add_found(frame)
            joined += frame.text
    return joined


def test_stripped_sentences_are_joined_as_their_script_is_written() -> None:
    """By the space that Pipecat's own aggregator drops; a new message begins without one."""
    said = VerbatimText()
    assert spoken(said, ["Yes."], ["No."]) == "Yes. No."
    said.start_reply()
    assert spoken(said, ["好", "。"], ["再", "见"]) == "好。再见"


def test_a_word_that_is_not_in_its_segment_is_still_separated() -> None:
    """A word that a text transform has changed is separated by an ordinary space."""
    said = VerbatimText()
    segment = AggregatedTextFrame("It is 42.", "sentence")
    said.announce(segment, continues=False)
    frames = [word_frame("It", segment), word_frame("forty-two", segment)]
    for frame in frames:
        said.add_found(frame)
    assert "".join(frame.text for frame in frames) == "It forty-two"


@pytest.mark.parametrize("found", ["—x² Hi #", "#", ".", "Hi"])
def test_what_the_history_has_is_not_added_again(found: str) -> None:
    """Pipecat loses its place beside joined symbols, and then completes a segment anew."""
    said = VerbatimText()
    segment = AggregatedTextFrame("—x² Hi.", "sentence")
    said.announce(segment, continues=True)
    word, again = word_frame("Hi", segment), word_frame(found, segment)
    assert said.add_word(word, "—x² Hi.", "—x² Hi. Yes.") and word.text == "—x² Hi."
    said.add_found(again)
    assert not again.append_to_context


def test_a_word_of_text_that_the_server_has_not_got_is_not_taken() -> None:
    """A filter has removed a mark of the LLM: the history has what Pipecat finds."""
    said = VerbatimText()
    segment = AggregatedTextFrame("One <card>41 11</card>", "sentence")
    said.announce(segment, continues=True)
    assert said.segment_of("One", "One 41 11") is None
    assert not said.add_word(word_frame("One", segment), "One", "One 41 11")
    frames = [word_frame(each, segment) for each in ("One", "<card>41", "11</card>")]
    for frame in frames:
        said.add_found(frame)
    assert "".join(frame.text for frame in frames) == "One <card>41 11</card>"


@pytest.mark.parametrize(
    ("before", "after", "space"),
    [
        ("Yes.", "No.", " "),
        ("Yes. ", "No.", ""),
        ("Yes.", "\nNo.", ""),
        ("", "No.", ""),
        ("好。", "再", ""),
        ("好。", "Hello", ""),
        ("안녕.", "네", " "),
        ("Hi 😊", "there", " "),
    ],
)
def test_texts_are_joined_as_their_script_is_written(before: str, after: str, space: str) -> None:
    """Texts are separated by a space, unless white space is there or the script has none."""
    assert joint(before, after) == space


def word_frame(word: str, segment: AggregatedTextFrame) -> TTSTextFrame:
    """A word frame like those of Pipecat's sequencer."""
    return TTSTextFrame(word, "word", raw_text=word, segment_id=segment.id)


@pytest.mark.parametrize("question", ["Sure?", [{"type": "text", "text": "Sure?"}]])
def test_what_was_said_before_the_user_spoke_stays(question: Any) -> None:
    """Even if a filter has swallowed the message that is to be shortened."""
    messages: list[Any] = [assistant("Yes."), {"role": "user", "content": question}]
    assert without_end(messages, "Yes.") == messages


def test_an_image_of_the_user_divides_the_text_of_a_turn() -> None:
    """So does a call of a function: both parts are shortened."""
    picture = LLMContext.create_image_url_message(url="data:,", text="the camera")
    call: list[Any] = [{"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "{}"}]
    messages = [assistant("One, two,"), picture, *call, assistant("three, four.")]
    assert without_end(messages, "two, three, four.") == [assistant("One,"), picture, *call]


def assistant(text: str) -> Any:
    """A message of the assistant."""
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("said", "end", "left"),
    [
        (["One, two, three,"], " three,", ["One, two,"]),
        (["One, two, three,"], "", ["One, two, three,"]),
        (["Hm. One, two, three,"], " One, two, three,", ["Hm."]),
        (["One, two, three,"], " One, two, three,", []),
        (["One,", "two, three,"], " One, two, three,", []),
        (["One,", "two, three,"], " three,", ["One,", "two,"]),
        (["One,", "two, three,"], " two, three,", ["One,"]),
        (["Nine, ten."], " two, three,", ["Nine, ten."]),
    ],
    ids=[
        "the end", "all heard", "behind another text", "nothing heard", "two messages",
        "the last of two", "one of two", "changed",
    ],
)  # fmt: skip
def test_words_that_were_not_heard_leave_their_own_message(
    said: list[str], end: str, left: list[str]
) -> None:
    """What stands before and behind it stays, and a message that has changed."""
    before: list[Any] = [assistant("Zero. three,"), {"role": "user", "content": "Well?"}]
    after = {"role": "developer", "content": "What? three,"}
    corrected = without_end([*before, *map(assistant, said), after], end)
    assert corrected == [*before, *map(assistant, left), after]
