"""Spans of the contexts that a worker's engine speaks, derived from its messages."""

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.seam.commands import Submit
from voiceagent_tts.seam.events import AudioStep, Cancelled, Capabilities, Done, Failed
from voiceagent_tts.seam.wire import Message
from voiceagent_tts.tracing import Span, Tracer


class EngineSpans:
    """Starts a span with the first text of a traced context, and ends it when its row is free."""

    def __init__(self, tracer: Tracer, capabilities: Capabilities) -> None:
        self._tracer = tracer
        self._engine = {
            "tts.engine": capabilities.engine,
            "gen_ai.request.model": capabilities.model,
            "gen_ai.output.type": "speech",
        }
        self._spans: dict[int, Span] = {}
        self._samples: dict[int, int] = {}

    def command(self, command: Message) -> None:
        """Record a command that the engine receives."""
        if isinstance(command, Submit) and command.traceparent is not None:
            span = self._tracer.start("tts.engine", "internal", command.traceparent)
            span.set({**self._engine, "tts.feeding": command.feeding})
            self._spans[command.context] = span
            self._samples[command.context] = 0

    def event(self, event: Message) -> None:
        """Record an event that the engine sends."""
        if not self._spans:
            return
        match event:
            case AudioStep(rows):
                for row in rows:
                    self._count(row.context, row.chunk.samples)
            case Done(context):
                self._end(context)
            case Cancelled(context):
                if context in self._spans:
                    self._spans[context].event("aborted")
                self._end(context)
            case Failed(int(context), code):
                if context in self._spans:
                    self._spans[context].fail(code)
                self._end(context)
            case _:
                pass

    def _count(self, context: int, samples: int) -> None:
        if context in self._spans:
            if not self._samples[context]:
                self._spans[context].event("first_codec_frame")
            self._samples[context] += samples

    def _end(self, context: int) -> None:
        if (span := self._spans.pop(context, None)) is not None:
            span.set({"tts.audio_s": self._samples.pop(context) / SAMPLE_RATE_HZ})
            span.end()
