"""One span for each context that a client asks for, from the request to the end of its context.

Its `traceparent` goes to the engine with the options of the context, so that the span of the engine
is its child.
"""

import asyncio
from dataclasses import replace
from typing import Literal

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.state import ServerHooks
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport, Milestones
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.tracing import Exporter, Span, start_exporter

_EVENTS = {
    "opened_at": "admitted",
    "first_text_at": "first_text",
    "submitted_at": "first_segment",
    "first_audio_at": "first_codec_frame",
    "first_sent_at": "first_audio_sent",
    "cancelled_at": "cancel_received",
}


def add_to_server(hooks: ServerHooks) -> None:
    """Trace contexts, if the environment names a collector."""
    exporter = start_exporter()
    if exporter is not None:
        spans = ContextSpans(exporter)
        hooks.state.opener.on_request.append(spans.start)
        hooks.state.opener.observers.append(spans)


class ContextSpans:
    """The spans of the contexts of a server.

    Args:
        exporter: sends them; closed with this object.
    """

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._spans: dict[str | None, Span] = {}
        """By `traceparent`."""

    def start(self, origin: Origin, options: ContextOptions) -> ContextOptions:
        """Start the span of a requested context, and name it in the options."""
        span = self._exporter.tracer.start("tts.context", "server", origin.traceparent)
        span.set(
            {
                "gen_ai.operation.name": "text_to_speech",
                "gen_ai.output.type": "speech",
                "gen_ai.provider.name": "voiceagent-tts",
                "http.route": origin.path,
                "tts.is_batch": options.speech.is_batch,
                **{f"tts.{name}": value for name, value in origin.ids.items()},
            }
        )
        traceparent = span.traceparent
        self._spans[traceparent] = span
        return replace(options, traceparent=traceparent)

    def not_opened(
        self,
        origin: Origin,
        options: ContextOptions,
        outcome: Literal["refused", "cancelled"],
        code: ErrorCode | None = None,
    ) -> None:
        """End the span of a context that was refused or cancelled before it was open."""
        self._end(options, code)

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Write the outcome of a context, and end its span."""
        span = self._spans[context.request.options.traceparent]
        for name, at in _moments(report.milestones):
            span.event(name, at)
        span.set(
            {
                "gen_ai.request.model": context.worker.capabilities.model,
                "tts.voice": context.voice.name,
                "tts.language": context.request.language,
                "tts.chars": report.chars,
                "tts.audio_s": report.audio_samples / SAMPLE_RATE_HZ,
                "tts.discarded_s": report.discarded_samples / SAMPLE_RATE_HZ,
                "tts.time_to_first_audio_s": report.ttfa_s,
                "tts.underrun_s": report.underrun_s,
                "tts.reason": report.reason,
            }
        )
        self._end(context.request.options, report.code)

    def _end(self, options: ContextOptions, code: ErrorCode | None) -> None:
        span = self._spans.pop(options.traceparent)
        if code is not None:
            span.fail(code)
        span.end()

    async def close(self) -> None:
        """Send the spans that wait."""
        await asyncio.to_thread(self._exporter.close)


def _moments(milestones: Milestones) -> list[tuple[str, float]]:
    """The events of a span and their times, in order."""
    moments = ((name, getattr(milestones, field)) for field, name in _EVENTS.items())
    return sorted((each for each in moments if each[1] is not None), key=lambda each: each[1])
