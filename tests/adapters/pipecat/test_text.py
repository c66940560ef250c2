"""What Pipecat's history keeps of a text: its white space, and no word that is taken back."""

from typing import Any

import pytest
from pipecat.frames.frames import AggregatedTextFrame, TTSTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from voiceagent_tts.adapters.pipecat.text import CONTINUES, VerbatimText, joint, without_end


def word_frame(word: str, segment: AggregatedTextFrame) -> TTSTextFrame:
    """A word frame like those of Pipecat's sequencer."""
    return TTSTextFrame(word, "word", raw_text=word, segment_id=segment.id)


def test_a_word_that_is_not_in_its_segment_is_still_separated() -> None:
    """A word that a text transform has changed is separated by an ordinary space."""
    said = VerbatimText()
    segment = AggregatedTextFrame("It is 42.", "sentence")
    said.announce(segment)
    frames = [word_frame("It", segment), word_frame("forty-two", segment)]
    for frame in frames:
        said.add_found(frame)
    assert "".join(frame.text for frame in frames) == "It forty-two"


def test_a_word_of_text_that_the_server_has_not_got_is_not_taken() -> None:
    """A filter has removed a mark of the LLM: the history has what Pipecat finds."""
    said = VerbatimText()
    segment = AggregatedTextFrame("One <card>41 11</card>", "sentence")
    segment.metadata[CONTINUES] = True
    said.announce(segment)
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
