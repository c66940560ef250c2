"""What is said for a masked text."""

from hypothesis import given

from testbed.texts import chunked
from voiceagent_tts.core import Reading
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.text.feed import TextFeed
from voiceagent_tts.text.reader import Passage, Reader
from voiceagent_tts.text.readings import said


def test_a_reading_takes_the_place_of_its_mask() -> None:
    """Its characters have the offset of the span; the rest is cleaned as usual."""
    result = said("**xxxxx** now", 10, [Reading(12, 17, "engine x")])
    assert result.text == "engine x now"
    assert result.offsets == (*[12] * 8, 19, 20, 21, 22)


def test_ipa_covers_the_letters_that_it_replaces() -> None:
    """By their place in what is said."""
    result = said("a *xx* b", 0, [Reading(3, 5, "to go", "təɡəʊ")])
    assert result.text == "a to go b"
    assert result.ipa == ((range(2, 7), "təɡəʊ"),)


def test_a_reading_that_began_before_is_said_already() -> None:
    """A text that begins inside its span has only what follows the span."""
    reading = Reading(3, 8, "said")
    assert said("xx rest", 6, [reading]).text == "rest"


TEXT = "Run nginx in New York, please. nginx's log is *nginx* and 重庆 too."
LEXICON = EntryMatcher(
    check_entries({"nginx": "engine x", "new york": "noo yawk", "重庆": "chongching"})
)


def fed(deltas: list[str]) -> str:
    """What a model is fed of a text that arrives in deltas."""
    reader, feed = Reader([LEXICON]), TextFeed(10_000)
    spoken = ""
    for part in [*(part for delta in deltas for part in reader.push(delta)), *reader.flush()]:
        assert isinstance(part, Passage)
        spoken += "".join(each.spoken for each in feed.push(part.text, part.readings))
    return spoken + "".join(each.spoken for each in feed.finish())


@given(chunked(TEXT))
def test_token_feeding_says_the_readings(deltas: list[str]) -> None:
    """Word by word, for any split of the text."""
    assert fed(deltas) == (
        "Run engine x in noo yawk, please. engine x's log is engine x and chongching too."
    )
