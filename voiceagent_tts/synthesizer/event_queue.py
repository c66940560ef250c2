"""The events of one context that its reader has not read yet."""

import asyncio
from collections import deque
from collections.abc import Callable

from voiceagent_tts.core import AudioChunk, WordTimestamp
from voiceagent_tts.synthesizer.events import ContextEvent, ContextWords


class EventQueue:
    """Orders events for their reader: words first, then all others in order of arrival.

    Args:
        on_event: called whenever there is a new event; None for a reader that waits.
    """

    def __init__(self, on_event: Callable[[], None] | None) -> None:
        self._arrival = asyncio.Event()
        self._words: list[WordTimestamp] = []
        self._events: deque[ContextEvent] = deque()
        self.notify = on_event or self._arrival.set
        """Wakes the reader."""

    @property
    def has_words_next(self) -> bool:
        """Whether `pop` would return words."""
        return bool(self._words)

    @property
    def has_audio_next(self) -> bool:
        """Whether `pop` would return audio."""
        is_audio = bool(self._events) and isinstance(self._events[0], AudioChunk)
        return is_audio and not self._words

    def put(self, *events: ContextEvent) -> None:
        """Append events."""
        if events:
            self._events += events
            self.notify()

    def put_words(self, words: tuple[WordTimestamp, ...]) -> None:
        """Append words, which overtake all other events."""
        self._words += words
        self.notify()

    def pop(self) -> ContextEvent | None:
        """Return the next event, or None."""
        if self._words:
            words, self._words = self._words, []
            return ContextWords(tuple(words))
        if self._events:
            return self._events.popleft()
        self._arrival.clear()
        return None

    def clear(self) -> None:
        """Drop all events."""
        self._words.clear()
        self._events.clear()

    async def wait(self) -> None:
        """Wait for an event that arrives after `pop` has found none."""
        await self._arrival.wait()
