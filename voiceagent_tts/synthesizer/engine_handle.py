"""One context's connection to the engine worker that speaks it."""

import time
from dataclasses import replace
from enum import Enum, auto

from voiceagent_tts.core import Segment
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.commands import Append, Credit, Flush, Prepare, Submit
from voiceagent_tts.seam.events import AudioStep, Event
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.worker_client import EventHandler, WorkerClient


class _Row(Enum):
    RESERVED = auto()
    """The worker reserves a row, but has received no text."""
    SPEAKING = auto()
    """The worker has received text."""
    RELEASED = auto()
    """The context has released its row."""


class EngineHandle:
    """Sends one context's commands to its engine worker, whose row it reserves.

    Args:
        worker: the engine worker.
        request: the resolved options of the context.
        on_event: receives the engine's events for the context.

    Attributes:
        submitted_at: `time.monotonic()` of the first segment sent; None before it.
        first_audio_at: `time.monotonic()` of the first audio received; None before it.

    Raises:
        EngineError: the worker has ended.
    """

    def __init__(
        self, worker: WorkerClient, request: ContextRequest, on_event: EventHandler
    ) -> None:
        self._worker = worker
        self._request = request
        self._on_event = on_event
        self.submitted_at: float | None = None
        self.first_audio_at: float | None = None
        self._number = worker.attach(self._receive)
        self._row = _Row.RESERVED

    @property
    def is_speaking(self) -> bool:
        """Whether the worker has text of the context and still holds its row."""
        return self._row is _Row.SPEAKING

    def prepare(self) -> None:
        """Ask the worker to compute ahead what would delay the first audio."""
        request = self._request
        # The prompt begins with the language; segments without one take it from their text.
        if request.language is not None or request.feeding == "token":
            speech = request.speech
            voice = request.voice.name
            self._worker.send(Prepare(voice, request.language, request.feeding, speech))

    def speak(
        self, segment: Segment, language: str | None, *, is_last: bool, continues: bool = False
    ) -> None:
        """Send the next segment; the first one starts the row.

        Args:
            segment: the segment.
            language: its language code; None if the engine chooses.
            is_last: whether no text follows.
            continues: whether the listener has heard other audio before the first segment, so that
                the silence before its sound is a pause, and the context is not refused any more.
        """
        place = (self._number, segment.text, segment.char_start, not is_last)
        if self.is_speaking:
            self._worker.send(Append(*place, language, segment.readings))
            return
        self._row = _Row.SPEAKING
        if self.submitted_at is None:
            self.submitted_at = time.monotonic()
        request = self._request
        speech = replace(request.speech, keeps_silence=True) if continues else request.speech
        how = (request.voice.name, language, request.feeding, speech)
        traceparent = request.options.traceparent
        self._worker.send(Submit(*place, *how, segment.readings, traceparent, continues))

    def end_text(self, char_end: int) -> None:
        """Report that no text follows the text before `char_end`."""
        self._worker.send(Append(self._number, "", char_end, False, None))

    def flush(self) -> None:
        """Make the engine speak all text so far as if it had ended."""
        self._worker.send(Flush(self._number))

    def grant(self, playout_end: float, samples_wanted: int) -> None:
        """Send credit; arguments as for `Credit`."""
        self._worker.send(Credit(self._number, playout_end, samples_wanted))

    def release(self) -> None:
        """Release the row and receive no more events; idempotent."""
        self._worker.detach(self._number, needs_cancel=self.is_speaking)
        self._row = _Row.RELEASED

    def _receive(self, event: Event | AlignEvent) -> None:
        if self.first_audio_at is None and isinstance(event, AudioStep):
            self.first_audio_at = time.monotonic()
        self._on_event(event)
