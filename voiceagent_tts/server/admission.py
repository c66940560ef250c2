"""Admits contexts within their callers' limits, charges them, and records their ends.

Every route opens its contexts here; the synthesizer itself does not handle keys. The span of a
context is written from its report.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog

from voiceagent_tts.access.keys import Caller
from voiceagent_tts.core import SAMPLE_RATE_HZ, samples_to_ms
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.messages import SpeechFields
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.tracing.spans import Span, Tracer

if TYPE_CHECKING:
    from voiceagent_tts.access.limiter import Admission, Limiter

_log = structlog.get_logger()

_EVENTS = {
    "opened_at": "admitted",
    "first_text_at": "first_text",
    "submitted_at": "first_segment",
    "first_audio_at": "first_codec_frame",
    "first_sent_at": "first_audio_sent",
    "cancelled_at": "cancel_received",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a context comes from.

    Args:
        caller: the key and the address.
        path: the route.
        ids: ids of the request or the socket, and of the context, by name.
        traceparent: the caller's W3C `traceparent`, as received; None without one.
    """

    caller: Caller
    path: str
    ids: Mapping[str, str]
    traceparent: str | None = None


class ContextObserver(Protocol):
    """Records what becomes of contexts; plugins add theirs to `ContextOpener.observers`."""

    def not_opened(
        self,
        origin: Origin,
        options: ContextOptions,
        outcome: Literal["refused", "cancelled"],
        code: ErrorCode | None = None,
        /,
    ) -> None:
        """Record a context that was refused, or that its client cancelled or left before."""
        ...

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Record a context that has ended."""
        ...

    async def close(self) -> None:
        """Finish the records; the last context has ended."""
        ...


@dataclass(frozen=True, slots=True)
class AdmittedContext:
    """An open context, and what its caller may still use; None on a server without limits."""

    context: Context
    admission: "Admission | None"

    async def push_text(self, text: str) -> None:
        """Charge text and speak it.

        Raises:
            InvalidRequestError: the context does not accept it.
            OverloadedError: the caller has used its limit; nothing of `text` was accepted.
        """
        if self.admission is not None:
            await self.admission.charge(len(text))
        self.context.push_text(text)


class ContextOpener:
    """Opens the contexts of all callers.

    Args:
        synthesizer: speaks.
        limiter: admits; None where nothing is limited.
        metrics: counts refusals, and how long admission takes.
        tracer: starts the spans of contexts; None without tracing.

    Attributes:
        observers: record what becomes of contexts.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        limiter: "Limiter | None",
        metrics: Metrics,
        tracer: Tracer | None,
    ) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._synthesizer = synthesizer
        self._limiter = limiter
        self.observers: list[ContextObserver] = []

    async def open(
        self,
        origin: Origin,
        options: ContextOptions,
        on_event: Callable[[], None] | None = None,
        *,
        chars: int = 1,
    ) -> AdmittedContext:
        """Open a context for a caller whose text has `chars` characters, as far as is known.

        Raises:
            InvalidRequestError: as for `Synthesizer.open`.
            OverloadedError: there is no capacity, or a limit of the caller is reached.
            UnauthorizedError: the caller's key was revoked.
        """
        started = time.monotonic()
        span = None if self._tracer is None else _start_span(self._tracer, origin, options)
        if span is not None:
            options = replace(options, traceparent=span.traceparent)
        with self._metrics.contexts_waiting.track_inprogress():
            try:
                return await self._admit(origin, options, on_event, chars, span)
            except VoiceAgentError as error:
                self._metrics.count_refusal(error.code)
                code = error.code
                self._tell(lambda each: each.not_opened(origin, options, "refused", code))
                _drop_span(span, error.code)
                raise
            except asyncio.CancelledError:
                self._tell(lambda each: each.not_opened(origin, options, "cancelled"))
                _drop_span(span)
                raise
            finally:
                self._metrics.admission_wait.observe(time.monotonic() - started)

    async def _admit(
        self,
        origin: Origin,
        options: ContextOptions,
        on_event: Callable[[], None] | None,
        chars: int,
        span: Span | None,
    ) -> AdmittedContext:
        if self._limiter is None:
            return await self._open(origin, options, on_event, span, None)
        admission = await self._limiter.admit(origin.caller, chars)
        try:
            return await self._open(origin, options, on_event, span, admission)
        except BaseException:
            admission.end()
            raise

    async def _open(
        self,
        origin: Origin,
        options: ContextOptions,
        on_event: Callable[[], None] | None,
        span: Span | None,
        admission: "Admission | None",
    ) -> AdmittedContext:
        context = await self._synthesizer.open(
            replace(options, owner=origin.caller.key_id),
            on_event,
            functools.partial(self._end, origin, admission, span),
            None if admission is None else admission.free_row,
            functools.partial(_charge_surplus, admission),
        )
        return AdmittedContext(context, admission)

    def _end(
        self,
        origin: Origin,
        admission: "Admission | None",
        span: Span | None,
        context: Context,
        report: ContextReport,
    ) -> None:
        if admission is not None:
            admission.end(samples_to_ms(report.audio_samples) / 1000, has_row=True)
        self._tell(lambda each: each.ended(origin, context, report))
        if span is not None:
            _end_span(span, context, report)

    def _tell(self, tell: Callable[[ContextObserver], None]) -> None:
        """Tell all observers; one that fails costs neither the client nor the others anything."""
        for observer in self.observers:
            try:
                tell(observer)
            except Exception as error:
                _log_failure(observer, error)

    async def close(self) -> None:
        """Close all observers, none of which waits for another; no context is open."""
        closing = (each.close() for each in self.observers)
        outcomes = await asyncio.gather(*closing, return_exceptions=True)
        for observer, outcome in zip(self.observers, outcomes, strict=True):
            if isinstance(outcome, Exception):
                _log_failure(observer, outcome)


def _log_failure(observer: ContextObserver, error: Exception) -> None:
    name = type(observer).__name__
    _log.error("observer_failed", observer=name, error=type(error).__name__)


def _charge_surplus(admission: "Admission | None", context: Context, chars: int) -> None:
    """Charge the length of readings beyond their text; at the limit, fail the context."""
    if admission is not None:
        admission.charge_in_background(chars, context.fail)


def options_of(fields: SpeechFields) -> ContextOptions:
    """Return the options that all routes share; each route adds its own.

    Raises:
        InvalidRequestError: the lexicon has a mistake.
    """
    lexicon: dict[str, Any] = {}
    if fields.lexicon:
        from voiceagent_tts.lexicon import check_entries

        lexicon = check_entries(fields.lexicon)
    return ContextOptions(
        speech=SpeechOptions(
            speed=fields.speed, seed=fields.seed, keeps_silence=fields.leading_silence
        ),
        lexicon=lexicon,
        has_markup=fields.markup,
        cache="use" if fields.cache else "off",
        is_strict=fields.strict_language,
    )


def _start_span(tracer: Tracer, origin: Origin, options: ContextOptions) -> Span:
    """Start the span of a requested context."""
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


def _drop_span(span: Span | None, code: str | None = None) -> None:
    """End the span of a context that was not opened."""
    if span is not None:
        if code is not None:
            span.fail(code)
        span.end()


def _end_span(span: Span, context: Context, report: ContextReport) -> None:
    """Write the outcome of the context, and end its span."""
    moments = ((name, getattr(report.milestones, field)) for field, name in _EVENTS.items())
    for name, at in sorted((moment for moment in moments if moment[1] is not None), key=_time):
        span.event(name, at)
    span.set(
        {
            "gen_ai.request.model": context.model,
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
