"""Flushes are answered when their text is spoken and its words are published."""

from voiceagent_tts.synthesizer.events import ContextFlushed
from voiceagent_tts.synthesizer.flushes import FlushQueue


def queue_of(*char_ends: int) -> FlushQueue:
    """Flushes 0, 1, … of the text before each of `char_ends`."""
    flushes = FlushQueue()
    for flush_id, char_end in enumerate(char_ends):
        flushes.add(flush_id, char_end)
    return flushes


def test_a_flush_without_text_is_answered_at_once() -> None:
    """A flush before any text is due although there is no audio."""
    assert queue_of(0).pop_answers(0, 0, None) == [ContextFlushed(0, 0)]


def test_a_flush_waits_until_its_text_is_spoken() -> None:
    """A flush is due when the audio of the last character before it is complete."""
    flushes = queue_of(5)
    assert flushes.pop_answers(4, 100, None) == []
    assert flushes.pop_answers(5, 200, None) == [ContextFlushed(0, 200)]


def test_a_flush_waits_for_the_words_before_it() -> None:
    """A flush is due when the next word to publish begins after its text."""
    flushes = queue_of(5)
    assert flushes.pop_answers(5, 100, 4) == []
    assert flushes.pop_answers(5, 100, 5) == [ContextFlushed(0, 100)]


def test_a_flush_keeps_the_end_of_its_own_audio() -> None:
    """Audio that arrives while a flush waits for words does not move its end."""
    flushes = queue_of(5)
    flushes.pop_answers(5, 100, 4)
    assert flushes.pop_answers(9, 300, None) == [ContextFlushed(0, 100)]


def test_flushes_are_answered_in_order_and_once() -> None:
    """Of several flushes the due ones are answered, oldest first, and only once."""
    flushes = queue_of(3, 5, 9)
    assert flushes.pop_answers(5, 100, None) == [ContextFlushed(0, 100), ContextFlushed(1, 100)]
    assert flushes.pop_answers(5, 100, None) == []
    assert flushes.pop_answers(9, 200, None) == [ContextFlushed(2, 200)]
