from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import Word
from voiceagent_tts.espeak.library import EventType, SpeechEvent
from voiceagent_tts.espeak.word_times import SpokenText, WordSpan, time_words
from voiceagent_tts.text.words import split_words


def word_at(char_index: int, sample: int) -> SpeechEvent:
    """A WORD event at `char_index`."""
    return SpeechEvent(EventType.WORD, char_index, sample)


def phoneme(sample: int, name: str = "a") -> SpeechEvent:
    """A phoneme of the last word."""
    return SpeechEvent(EventType.PHONEME, 0, sample, name)


def pause(sample: int) -> SpeechEvent:
    """The beginning of a silence."""
    return phoneme(sample, "_:")


def letters(text: str) -> int:
    """Phonemes of a language in which every letter or digit is one phoneme."""
    return sum(character.isalnum() for character in text)


def times(text: str, *events: SpeechEvent) -> list[tuple[int, int, bool]]:
    """Start, end and exactness of the words of `text`, spoken as written."""
    spoken = SpokenText(text, range(len(text)))
    spans = time_words(split_words(text), spoken, events, letters)
    return [(span.start, span.end, span.is_exact) for span in spans]


def test_a_word_begins_at_its_first_phoneme_and_ends_at_a_pause_or_the_next_word() -> None:
    """The silence between a WORD event and its first phoneme belongs to neither word."""
    assert times(
        "Go on, now",
        *(word_at(0, 0), phoneme(30), phoneme(60)),
        *(word_at(3, 100), phoneme(110), pause(200), pause(250)),
        *(word_at(7, 300), phoneme(310), pause(400)),
    ) == [(30, 100, True), (110, 200, True), (310, 400, True)]


def test_an_event_on_the_space_before_a_word_belongs_to_the_word() -> None:
    """Espeak sometimes reports the space before a word, as in "St., doesn't"."""
    assert times("a b", word_at(0, 0), phoneme(0), word_at(1, 50), phoneme(50), pause(90)) == [
        (0, 50, True),
        (50, 90, True),
    ]


def test_the_first_of_several_events_of_a_word_counts() -> None:
    """A number is several words to espeak and one to the client."""
    events = [event for i in range(3) for event in (word_at(3 + i, 50 + i * 10), phoneme(52 + i))]
    assert times("am 4215", word_at(0, 0), phoneme(0), phoneme(9), *events, pause(99)) == [
        (0, 50, True),
        (52, 99, True),
    ]


def test_words_that_share_a_sound_are_cut_at_their_phonemes() -> None:
    """If the words have as many phonemes as the sound, the division is exact."""
    events = [word_at(0, 0), *map(phoneme, (0, 20, 30, 70, 80)), pause(100)]
    assert times("of the", *events) == [(0, 30, True), (30, 100, True)]


def test_a_sound_with_other_phonemes_is_cut_in_proportion() -> None:
    """The division is at a phoneme and is reported as an estimate."""
    events = [word_at(0, 0), *map(phoneme, (0, 20, 30, 70)), pause(100)]
    assert times("of them", *events) == [(0, 20, True), (20, 100, False)]


def test_a_word_that_cleaning_removed_has_no_length() -> None:
    """It is placed at the end of the word before it."""
    spoken = SpokenText("hi yo", [0, 1, 2, 8, 9])
    words = [Word("hi", 0, 2), Word("<b>x", 3, 7), Word("yo", 8, 10)]
    events = [word_at(0, 0), *map(phoneme, (0, 5)), pause(9), word_at(3, 10), phoneme(10)]
    assert time_words(words, spoken, [*events, pause(20)], letters) == [
        WordSpan(words[0], 0, 9, is_exact=True),
        WordSpan(words[1], 9, 9, is_exact=False),
        WordSpan(words[2], 10, 20, is_exact=True),
    ]


def test_words_before_the_first_event_share_its_sound() -> None:
    """No word is lost if espeak reports its first word late."""
    events = [word_at(3, 10), *map(phoneme, (10, 20, 30)), pause(40)]
    assert times("a bc", *events) == [(10, 20, True), (20, 40, True)]


def test_a_guessed_offset_is_not_exact() -> None:
    """If one reading covers two kanji, the border between them is an estimate."""
    spoken = SpokenText("denwa", [0, 0, 0, 1, 1], guessed=frozenset([1]))
    words = [Word("電", 0, 1), Word("話", 1, 2)]
    events = [word_at(0, 0), *map(phoneme, range(5)), pause(5)]
    spans = time_words(words, spoken, events, letters)
    assert [(span.start, span.is_exact) for span in spans] == [(0, True), (3, False)]


def test_without_events_every_word_is_at_the_start() -> None:
    """The words of a text that espeak cannot pronounce are still reported."""
    assert times("a b") == [(0, 0, False), (0, 0, False)]


@given(
    text=st.text(st.sampled_from("ab1 .,\u4f60\u597d\u3042"), max_size=30),
    events=st.lists(
        st.tuples(st.sampled_from(EventType), st.integers(-2, 35), st.sampled_from(["a", "_:"])),
        max_size=40,
    ),
    counts=st.lists(st.integers(0, 9), min_size=1),
)
def test_any_events_give_every_word_once_in_order(text, events, counts) -> None:
    """For any events: each word once, starts never decrease, no time outside the audio."""
    speech = [
        SpeechEvent(kind, char_index, 7 * number, name if kind is EventType.PHONEME else "")
        for number, (kind, char_index, name) in enumerate(events)
    ]
    words = split_words(text)
    spoken = SpokenText(text, range(len(text)))
    spans = time_words(words, spoken, speech, lambda part: counts[len(part) % len(counts)])
    assert [span.word for span in spans] == words
    borders = [border for span in spans for border in (span.start, span.end)]
    assert borders == sorted(borders)
    assert all(0 <= border <= 7 * len(events) for border in borders)
