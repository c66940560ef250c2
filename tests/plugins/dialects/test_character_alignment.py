from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.plugins.dialects.character_alignment import CharacterAlignment
from voiceagent_tts.protocol.messages import WordsMessage


def message(text: str, times_ms: list[tuple[int, int | None]], *, skip: int = 0) -> WordsMessage:
    """Words of `text` with their times, without the first `skip` of them."""
    words: list[WordTimestamp] = []
    position = 0
    for word, (start, end) in zip(text.split(), times_ms, strict=True):
        position = text.index(word, position)
        span = Word(word, position, position + len(word))
        end_sample = None if end is None else ms_to_samples(end)
        words.append(WordTimestamp(span, ms_to_samples(start), end_sample, 1.0))
        position += len(word)
    return WordsMessage.of(words[skip:], context_id="c")


def test_text_may_arrive_behind_its_words() -> None:
    """The end of the text so far counts as white space, and is not doubled by what follows."""
    alignment = CharacterAlignment(counts_from_context=False)
    alignment.add_text("Hi")
    alignment.add_words(message("Hi", [(0, 100)]))
    alignment.add_text(" there")
    alignment.add_words(message("Hi there", [(0, 100), (100, 200)], skip=1))
    chunk = alignment.take()
    assert chunk is not None
    assert "".join(chunk["chars"]) == "Hi there "


def test_tags_are_not_characters_of_words() -> None:
    """Text between words that is not spoken does not appear; its white space does."""
    alignment = CharacterAlignment(counts_from_context=False)
    text = 'one<break time="1s"/> two'
    alignment.add_text(text)
    words = [Word("one", 0, 3), Word("two", len(text) - 3, len(text))]
    stamps = [WordTimestamp(word, 0, None, 1.0) for word in words]
    alignment.add_words(WordsMessage.of(stamps, context_id="c"))
    chunk = alignment.take()
    assert chunk is not None
    assert "".join(chunk["chars"]) == "one two "


@given(
    lengths=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=12),
    step_ms=st.integers(1, 700),
)
def test_sums_of_chunks_are_the_times(lengths: list[tuple[int, int]], step_ms: int) -> None:
    """However a text is cut into chunks, a client that adds up their lengths has every start."""
    text = " ".join(f"w{index}" for index in range(len(lengths)))
    ends = list(accumulate(pause + length for pause, length in lengths))
    times = [(end - length, end) for end, (_, length) in zip(ends, lengths, strict=True)]
    alignment = CharacterAlignment(counts_from_context=False)
    alignment.add_text(text)
    alignment.add_words(message(text, list(times)))
    clock_ms, starts, spoken = 0, [], ""
    for before_ms in [*range(step_ms, ends[-1], step_ms), None]:
        if chunk := alignment.take(before_ms):
            assert len(chunk["chars"]) == len(chunk["charStartTimesMs"])
            assert min(chunk["charDurationsMs"]) >= 0
            pairs = zip(chunk["chars"], chunk["charStartTimesMs"], strict=True)
            starts += [clock_ms + start for char, start in pairs if char == "w"]
            spoken += "".join(chunk["chars"])
            clock_ms += chunk["charStartTimesMs"][-1] + chunk["charDurationsMs"][-1]
    assert spoken == f"{text} "
    assert starts == [start for start, _ in times]
