from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.espeak.library import EventType, SpeechEvent
from voiceagent_tts.espeak.word_times import EspeakText, time_words
from voiceagent_tts.text.words import split_words


def word_at(char_index: int, sample: int) -> SpeechEvent:
    return SpeechEvent(EventType.WORD, char_index, sample)


def phoneme(sample: int, name: str = "a") -> SpeechEvent:
    return SpeechEvent(EventType.PHONEME, 0, sample, name)


def pause(sample: int) -> SpeechEvent:
    return phoneme(sample, "_:")


def letters(text: str) -> int:
    """Phonemes of a language in which every letter or digit is one phoneme."""
    return sum(character.isalnum() for character in text)


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
    spoken = EspeakText(text, range(len(text)))
    spans = time_words(words, spoken, speech, lambda part: counts[len(part) % len(counts)])
    assert [span.word for span in spans] == words
    borders = [border for span in spans for border in (span.start, span.end)]
    assert borders == sorted(borders)
    assert all(0 <= border <= 7 * len(events) for border in borders)
