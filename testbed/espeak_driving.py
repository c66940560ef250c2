"""A driver that steps an engine which reports its own words: the embedded voice, or another."""

from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.espeak.engine import EspeakEngine
from voiceagent_tts.seam.commands import Command, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.events import AudioStep, Done, Event, Words

UNLIMITED = 10**12

_E = TypeVar("_E", bound=Event)


class Driver:
    """An engine with an inbox that a test fills and a list of all its events."""

    def __init__(self, max_rows: int = 512) -> None:
        self.events: list[Event] = []
        self._arrivals: deque[list[Command]] = deque()
        self.engine = self._make_engine(max_rows)

    def _make_engine(self, max_rows: int) -> Engine:
        return EspeakEngine(self._inbox, self.events.append, max_rows=max_rows)

    def _inbox(self) -> list[Command]:
        return self._arrivals.popleft() if self._arrivals else []

    def send(self, *commands: Command, after_inbox_calls: int = 0) -> None:
        """Queue `commands` to arrive together, at one of the next times the engine reads its inbox.

        In a step the engine reads it before any speech and then between chunks.
        """
        self._arrivals.extend([] for _ in range(after_inbox_calls))
        self._arrivals.append(list(commands))

    def run(self, *commands: Command) -> list[Event]:
        """Send `commands`, step until there is no more work, and return the new events."""
        before = len(self.events)
        self.send(*commands)
        while self.engine.step() is not None or self._arrivals:
            pass
        return self.events[before:]

    def speak(self, text: str, language: str = "en", voice: str = "default", **options) -> bytes:
        """Speak a whole text in a new context and return its PCM."""
        context = 1 + len(self.events)
        submit = Submit(context, text, 0, False, voice, language, options=SpeechOptions(**options))
        events = self.run(submit, Credit(context, 0.0, UNLIMITED))
        assert isinstance(events[-1], Done), events[-1]
        return pcm_of(events, context)


def of_type(kind: type[_E], events: Iterable[Event]) -> list[_E]:
    """Return the events of one type, in order."""
    return [event for event in events if isinstance(event, kind)]


def pcm_of(events: Iterable[Event], context: int) -> bytes:
    """Return all PCM of a context; its chunks must be contiguous."""
    pcm = b""
    for step in of_type(AudioStep, events):
        for part in step.rows:
            if part.context == context:
                assert part.chunk.start_sample * 2 == len(pcm)
                pcm += part.chunk.pcm
    return pcm


def words_of(events: Iterable[Event], context: int) -> list[WordTimestamp]:
    """Return all words of a context, in the order in which they were sent."""
    parts = (event.words for event in of_type(Words, events) if event.context == context)
    return [word for words in parts for word in words]
