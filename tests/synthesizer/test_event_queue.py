"""Events reach their reader in order; words overtake other events."""

import asyncio

from voiceagent_tts.core import AudioChunk, Word, WordTimestamp
from voiceagent_tts.synthesizer.event_queue import EventQueue
from voiceagent_tts.synthesizer.events import ContextFlushed, ContextWords

AUDIO = AudioChunk(0, bytes(1920))
FLUSHED = ContextFlushed(1, 960)
ONE, TWO = (
    WordTimestamp(Word("one", 0, 3), 0, None, 0.5),
    WordTimestamp(Word("two", 4, 7), 480, None, 0.5),
)


def test_events_keep_their_order() -> None:
    """Events other than words keep their order, and the queue ends with None."""
    queue = EventQueue(None)
    queue.put(AUDIO)
    queue.put(FLUSHED)
    assert [queue.pop() for _ in range(3)] == [AUDIO, FLUSHED, None]


def test_words_overtake_and_leave_together() -> None:
    """Words put in at any time leave first, in one event."""
    queue = EventQueue(None)
    queue.put_words((ONE,))
    queue.put(AUDIO)
    queue.put_words((TWO,))
    assert [queue.pop() for _ in range(3)] == [ContextWords((ONE, TWO)), AUDIO, None]


def test_the_next_event_is_announced() -> None:
    """`has_words_next` and `has_audio_next` announce the event that `pop` returns."""
    queue = EventQueue(None)
    announced: list[tuple[bool, bool]] = []
    queue.put(AUDIO)
    queue.put(FLUSHED)
    queue.put_words((ONE,))
    while True:
        announced.append((queue.has_words_next, queue.has_audio_next))
        if queue.pop() is None:
            break
    assert announced == [(True, False), (False, True), (False, False), (False, False)]


def test_clear_drops_words_and_events() -> None:
    """After `clear` the queue is empty."""
    queue = EventQueue(None)
    queue.put(AUDIO)
    queue.put_words((ONE,))
    queue.clear()
    assert queue.pop() is None


def test_every_new_event_is_announced() -> None:
    """`on_event` is called once for each event and for each group of words."""
    calls: list[None] = []
    queue = EventQueue(lambda: calls.append(None))
    queue.put(AUDIO)
    queue.put_words((ONE, TWO))
    assert len(calls) == 2


async def test_a_reader_waits_until_an_event_comes() -> None:
    """`wait` ends with the next event after `pop` has found none."""
    queue = EventQueue(None)
    queue.put(AUDIO)
    assert (queue.pop(), queue.pop()) == (AUDIO, None)
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put(FLUSHED)
    await waiting
    assert queue.pop() == FLUSHED
