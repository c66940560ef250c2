"""The span of a context on the server, written from its report when it ends."""

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.server.context_log import Origin
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.tracing.spans import Span, Tracer

_EVENTS = {
    "opened_at": "admitted",
    "first_text_at": "first_text",
    "submitted_at": "first_segment",
    "first_audio_at": "first_codec_frame",
    "first_sent_at": "first_audio_sent",
    "cancelled_at": "cancel_received",
}


def start_context_span(tracer: Tracer, origin: Origin, options: ContextOptions) -> Span:
    """Start the span of a context that was asked for."""
    span = tracer.start("tts.context", "server", origin.traceparent)
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
    return span


def end_context_span(span: Span, context: Context, report: ContextReport, model: str) -> None:
    """Write what became of the context, and end its span."""
    moments = ((name, getattr(report.milestones, field)) for field, name in _EVENTS.items())
    for name, at in sorted((moment for moment in moments if moment[1] is not None), key=_time):
        span.event(name, at)
    span.set(
        {
            "gen_ai.request.model": model,
            "tts.voice": context.voice.name,
            "tts.language": context.language,
            "tts.chars": report.chars,
            "tts.audio_s": report.audio_samples / SAMPLE_RATE_HZ,
            "tts.discarded_s": report.discarded_samples / SAMPLE_RATE_HZ,
            "tts.time_to_first_audio_s": report.ttfa_s,
            "tts.underrun_s": report.underrun_s,
            "tts.reason": report.reason,
        }
    )
    if report.code is not None:
        span.fail(report.code)
    span.end()


def _time(moment: tuple[str, float]) -> float:
    return moment[1]
