"""A driver that steps an engine which speaks whole segments, and what its events say."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from voiceagent_tts.core import BYTES_PER_SAMPLE, WordTimestamp
from voiceagent_tts.espeak.engine import EspeakEngine
from voiceagent_tts.seam.commands import Append, Command, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.engine import Engine, Inbox, Outbox
from voiceagent_tts.seam.events import AudioStep, Done, Event, Words

UNLIMITED = 10**12
_MOST_CPU_S = 60.0
"""Processor time of this process for one run, which other programs do not take. It finds an engine
that works without an end; the limit of a test finds one that waits without an end."""

_E = TypeVar("_E", bound=Event)


class Driver:
    """An engine with an inbox that a test fills and a list of all its events."""

    def __init__(self, make: Callable[[Inbox, Outbox], Engine] = EspeakEngine) -> None:
        self.events: list[Event] = []
        self._arrivals: deque[list[Command]] = deque()
        self.engine = make(self._inbox, self.events.append)
        self.voice = self.engine.capabilities.voices[0]

    def _inbox(self) -> list[Command]:
        return self._arrivals.popleft() if self._arrivals else []

    def submit(self, context: int, text: str, *, more: bool = False, **fields: Any) -> Submit:
        """A command that opens a context, with the default voice in English."""
        fields = {"char_base": 0, "voice": self.voice, "language": "en"} | fields
        return Submit(context, text, more=more, **fields)

    def send(self, *commands: Command, after_inbox_calls: int = 0) -> None:
        """Queue `commands` to arrive together, at one of the next times the engine reads its inbox.

        In a step the engine reads it before any speech; espeak's also between chunks.
        """
        self._arrivals.extend([] for _ in range(after_inbox_calls))
        self._arrivals.append(list(commands))

    def step(self, *commands: Command) -> list[Event]:
        """Send `commands`, take one step, and return its events."""
        before = len(self.events)
        self.send(*commands)
        self.engine.step()
        return self.events[before:]

    def run(self, *commands: Command) -> list[Event]:
        """Send `commands`, step until there is no more work, and return the new events."""
        before = len(self.events)
        self.send(*commands)
        deadline = time.process_time() + _MOST_CPU_S
        while (wait_s := self.engine.step()) is not None or self._arrivals:
            assert time.process_time() < deadline, "the engine does not come to an end"
            if wait_s:  # the engine itself asks for it, while a voice is loaded
                time.sleep(wait_s)
        return self.events[before:]

    def speak(self, text: str, language: str = "en", voice: str = "", **options: Any) -> bytes:
        """Speak a whole text in a new context and return its PCM."""
        context = 1 + len(self.events)
        speech = SpeechOptions(**options)
        voice = voice or self.voice
        submit = Submit(context, text, 0, False, voice, language, options=speech)
        events = self.run(submit, credit(context))
        assert isinstance(events[-1], Done), events[-1]
        return pcm_of(events, context)


Start = Callable[..., Driver]
"""Starts an engine anew; arguments: `max_rows` and `threads`."""


def credit(context: int, samples_wanted: int = UNLIMITED, playout_end: float = 0.0) -> Credit:
    return Credit(context, playout_end, samples_wanted)


def append(context: int, text: str, char_base: int, *, more: bool = False) -> Append:
    return Append(context, text, char_base, more, "en")


def of_type(kind: type[_E], events: Iterable[Event]) -> list[_E]:
    return [event for event in events if isinstance(event, kind)]


def pcm_of(events: Iterable[Event], context: int) -> bytes:
    """Return all PCM of a context; its chunks must be contiguous."""
    pcm = b""
    for step in of_type(AudioStep, events):
        for part in step.rows:
            if part.context == context:
                assert part.chunk.start_sample * BYTES_PER_SAMPLE == len(pcm)
                pcm += part.chunk.pcm
    return pcm


def samples_of(events: Iterable[Event], context: int) -> int:
    return len(pcm_of(events, context)) // BYTES_PER_SAMPLE


def contexts_of(events: Iterable[Event]) -> list[int]:
    return [part.context for step in of_type(AudioStep, events) for part in step.rows]


def words_of(events: Iterable[Event], context: int) -> list[WordTimestamp]:
    """Return all words of a context, in the order in which they were sent."""
    parts = (event.words for event in of_type(Words, events) if event.context == context)
    return [word for words in parts for word in words]
