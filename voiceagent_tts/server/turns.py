"""Contexts of callers: admitted within their limits, charged, and recorded when they end.

Every route opens its contexts here; the synthesizer itself knows no keys.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from voiceagent_tts.access.keys import ANONYMOUS
from voiceagent_tts.access.limiter import Admission, Limiter
from voiceagent_tts.access.usage import UsageBook, Used
from voiceagent_tts.core import samples_to_ms
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.context_log import ContextLog, Origin
from voiceagent_tts.server.context_span import end_context_span, start_context_span
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.tracing.spans import Span, Tracer


@dataclass(frozen=True, slots=True)
class Turn:
    """An open context, and what its caller may still use."""

    context: Context
    admission: Admission

    async def push_text(self, text: str) -> None:
        """Charge text and speak it.

        Raises:
            InvalidRequestError: the context does not accept it.
            OverloadedError: the caller has used its limit; nothing of `text` was accepted.
        """
        if not self.push_text_now(text):
            await self.admission.charge(len(text))
            self.context.push_text(text)

    def push_text_now(self, text: str) -> bool:
        """Speak text that is charged later, with more text; return False if it cannot wait.

        Raises:
            InvalidRequestError: the context does not accept it.
        """
        if not self.admission.charge_later(len(text)):
            return False
        self.context.push_text(text)
        return True


class Turns:
    """Opens the contexts of all callers.

    Args:
        synthesizer: speaks.
        limiter: admits.
        usage: counts what keys use.
        log: the request log.
        metrics: counts refusals, and how long admission takes.
        tracer: starts the spans of contexts.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        limiter: Limiter,
        usage: UsageBook,
        log: ContextLog,
        metrics: Metrics,
        tracer: Tracer,
    ) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._synthesizer = synthesizer
        self._limiter = limiter
        self._usage = usage
        self._log = log

    async def open(
        self,
        origin: Origin,
        options: ContextOptions,
        on_event: Callable[[], None] | None = None,
        *,
        chars: int = 1,
    ) -> Turn:
        """Open a context for a caller whose text has `chars` characters, as far as is known.

        Raises:
            InvalidRequestError: as for `Synthesizer.open`.
            OverloadedError: there is no capacity, or a limit of the caller is reached.
            UnauthorizedError: the caller's key was revoked.
        """
        started = time.monotonic()
        span = start_context_span(self._tracer, origin, options)
        options = replace(options, traceparent=span.traceparent)
        with self._metrics.contexts_waiting.track_inprogress():
            try:
                return await self._admit(origin, options, on_event, chars, span)
            except VoiceAgentError as error:
                self._metrics.count_refusal(error.code)
                self._log.not_opened(origin, options, "refused", error.code)
                span.fail(error.code)
                span.end()
                raise
            except asyncio.CancelledError:
                self._log.not_opened(origin, options, "cancelled")
                span.end()
                raise
            finally:
                self._metrics.admission_wait.observe(time.monotonic() - started)

    async def _admit(
        self,
        origin: Origin,
        options: ContextOptions,
        on_event: Callable[[], None] | None,
        chars: int,
        span: Span,
    ) -> Turn:
        admission: Admission | None = None
        try:
            admission = await self._limiter.admit(origin.caller, chars)
            on_end = functools.partial(self._end, origin, admission, span)
            options = replace(options, owner=origin.caller.key_id)
            on_surplus = functools.partial(self._charge_surplus, admission)
            context = await self._synthesizer.open(
                options, on_event, on_end, admission.free_row, on_surplus
            )
            return Turn(context, admission)
        except BaseException:
            if admission is not None:
                admission.end()
            raise

    def _charge_surplus(self, admission: Admission, context: Context, chars: int) -> None:
        """Charge what a text says beyond its characters; a context that cannot pay it ends."""

        async def charge() -> None:
            try:
                await admission.charge(chars)
            except VoiceAgentError as error:
                context.fail(error)

        if not admission.charge_later(chars):
            self._limiter.spawn(charge())

    def _end(
        self,
        origin: Origin,
        admission: Admission,
        span: Span,
        context: Context,
        report: ContextReport,
    ) -> None:
        audio_ms = samples_to_ms(report.audio_samples)
        admission.end(audio_ms / 1000, has_row=True)
        self._usage.add(origin.caller.key_id or ANONYMOUS, Used(1, report.said_chars, audio_ms))
        self._log.ended(origin, context, report)
        model = self._synthesizer.workers[context.voice.worker].capabilities.model
        end_context_span(span, context, report, model)
