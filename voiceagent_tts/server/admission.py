"""Admits contexts within their callers' limits, charges them, and records their ends.

Every route opens its contexts here. `Access` gives each its `Admission`, if there are limits.
"""

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog

from voiceagent_tts.core import samples_to_ms
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.messages import SpeechFields
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer

if TYPE_CHECKING:
    from voiceagent_tts.server.access import Access, Admission

_PREPARE_EVERY_S = 0.05  # for one caller; no limit of a key counts preparations
_MAX_ANNOUNCED = 64  # contexts that one caller has announced; newer ones displace the oldest

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a context comes from."""

    caller: Caller
    path: str  # of the route
    ids: Mapping[str, str]  # of the request or the socket, and of the context, by name
    traceparent: str | None = None  # the caller's, as W3C has it; None without one


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
        """Charge text and speak it."""
        if self.admission is not None:
            await self.admission.charge(len(text))
        self.context.push_text(text)


class ContextOpener:
    """Opens the contexts of all callers."""

    def __init__(self, synthesizer: Synthesizer, access: "Access | None", metrics: Metrics) -> None:
        self._metrics = metrics
        self._synthesizer = synthesizer
        self._access = access
        self.on_request: list[Callable[[Origin, ContextOptions], ContextOptions]] = []
        """Receive each request for a context, and may change its options."""
        self.observers: list[ContextObserver] = []
        self._announced: dict[str, deque[ContextOptions]] = {}

    def prepare(self, owner: str, options: ContextOptions) -> None:
        """Have engines prepare for a context that a caller will open, at a limited rate for each.

        Raises:
            InvalidRequestError: as for `Synthesizer.check`.
        """
        self._synthesizer.check(options)
        if owner not in self._announced:
            self._announced[owner] = deque(maxlen=_MAX_ANNOUNCED)
            asyncio.get_running_loop().call_soon(self._prepare_next, owner)
        self._announced[owner].append(options)

    def _prepare_next(self, owner: str) -> None:
        if not self._announced[owner]:
            del self._announced[owner]
            return
        asyncio.get_running_loop().call_later(_PREPARE_EVERY_S, self._prepare_next, owner)
        with contextlib.suppress(VoiceAgentError):  # a voice may be gone meanwhile
            self._synthesizer.prepare(self._announced[owner].popleft())

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
        options = replace(options, owner=origin.caller.key_id)
        for change in self.on_request:
            options = change(origin, options)
        started, admission = time.monotonic(), None
        with self._metrics.contexts_waiting.track_inprogress():
            try:
                if (read_clones := self._synthesizer.voices.read_clones) is not None:
                    await asyncio.to_thread(read_clones)
                if self._access is not None:
                    admission = await self._access.admit(origin.caller, chars)
                context = await self._synthesizer.open(
                    options,
                    on_event,
                    functools.partial(self._end, origin, admission),
                    None if admission is None else admission.free_row,
                    None if admission is None else admission.charge_in_background,
                    owner=origin.caller.owner,
                )
                return AdmittedContext(context, admission)
            except BaseException as error:
                if admission is not None:
                    admission.end()
                self._note_not_opened(origin, options, error)
                raise
            finally:
                self._metrics.admission_wait.observe(time.monotonic() - started)

    def _note_not_opened(
        self, origin: Origin, options: ContextOptions, error: BaseException
    ) -> None:
        if isinstance(error, Exception):
            code = VoiceAgentError.wrapping(error).code
            self._metrics.refused.labels(code).inc()
            self._tell(lambda each: each.not_opened(origin, options, "refused", code))
        else:
            self._tell(lambda each: each.not_opened(origin, options, "cancelled"))

    def _end(
        self,
        origin: Origin,
        admission: "Admission | None",
        context: Context,
        report: ContextReport,
    ) -> None:
        self._metrics.observe(report)
        if admission is not None:
            admission.end(samples_to_ms(report.audio_samples) / 1000, has_row=True)
        self._tell(lambda each: each.ended(origin, context, report))

    def _tell(self, tell: Callable[[ContextObserver], None]) -> None:
        """Notify all observers; one that fails affects neither the client nor the others."""
        for observer in self.observers:
            try:
                tell(observer)
            except Exception as error:
                _log_failure(observer, error)

    async def close(self) -> None:
        """Close all observers at the same time; no context is open."""
        closing = (each.close() for each in self.observers)
        outcomes = await asyncio.gather(*closing, return_exceptions=True)
        for observer, outcome in zip(self.observers, outcomes, strict=True):
            if isinstance(outcome, Exception):
                _log_failure(observer, outcome)


def _log_failure(observer: ContextObserver, error: Exception) -> None:
    name = type(observer).__name__
    _log.error("observer_failed", observer=name, error=type(error).__name__)


def options_of(fields: SpeechFields) -> ContextOptions:
    """Return the options that all routes share; each route adds its own."""
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
