"""The workers of a server, and the contexts opened on them.

`context` describes the life of an utterance after `open`.
"""

import asyncio
import contextlib
import functools
import importlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from voiceagent_tts.core import WarningCode
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError, VoiceAgentError
from voiceagent_tts.seam.commands import MAX_NATIVE_SPEED, MIN_NATIVE_SPEED, Feeding
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.synthesizer.context import STEPS_AT_ONCE, Context, OnSurplus
from voiceagent_tts.synthesizer.events import ContextReport, ContextWarned
from voiceagent_tts.synthesizer.options import ContextOptions, ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import Turns
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.synthesizer.workers import (
    FindWorker,
    OnFree,
    Supervisor,
    Worker,
    WorkerClient,
    preparation_of,
)
from voiceagent_tts.text.language import normalize_language
from voiceagent_tts.voices import (
    Voice,
    VoiceBook,
    has_own_language,
    leaves_choice,
    spoken_language,
)

if TYPE_CHECKING:
    from voiceagent_tts.clones import SeenClones
    from voiceagent_tts.lexicon import Entries, Pronunciation
    from voiceagent_tts.text.entries import EntryMatcher

OnEnd = Callable[[Context, ContextReport], None]

_OVERFLOW = "overflow"
"""Name of the worker for contexts that find no free row, in voices and in metrics."""


class WordFinders(Protocol):
    """Processes that find the words of contexts whose engine reports none."""

    @property
    def supervisors(self) -> Mapping[str, Supervisor]:
        """The processes by name, also those that are being restarted."""
        ...

    @property
    def make_words(self) -> MakeWords:
        """Makes the words of a context."""
        ...

    @property
    def absent(self) -> "WordFinders":
        """Replaces them in contexts whose client uses no words: all times are estimates."""
        ...

    async def start(self) -> None:
        """Start the processes; an `EngineError` is raised where one is required and cannot."""
        ...


Proxy = Callable[[Worker, ContextRequest, WordFinders | None], tuple[Worker, MakeWords | None]]
"""Returns the worker that a context uses in place of its own, and what makes its words."""


class Synthesizer:
    """Starts the workers, and opens contexts on them.

    Args:
        make_aligners: makes the processes that find word times; called if an engine sends none.
        lexicon: pronunciations for all contexts.
        overflow: worker for contexts that find no free row; None to refuse them.
        clones_of: returns the clones that the owner of a context may use, or all without an owner;
            called if an engine speaks clones.
        uses_native_words: whether word times that an engine sends itself are used.
    """

    voices: VoiceBook  # set by `start`

    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        limits: Limits | None = None,
        make_aligners: Callable[[], WordFinders] | None = None,
        lexicon: "Entries | None" = None,
        overflow: Supervisor | None = None,
        clones_of: "Callable[[str | None], SeenClones] | None" = None,
        uses_native_words: bool = True,
    ) -> None:
        self.before_open: list[Callable[[Voice], Awaitable[None]]] = []
        """Called before a context with a voice gets its row; plugins add to it."""
        self.proxy: Proxy | None = None  # set by a plugin, as the next
        self.find_lexicon: Callable[[Voice], EntryMatcher | None] = lambda voice: None
        self._clones_of = clones_of
        self._overflow = overflow
        self.supervisors = dict(supervisors)  # of the engine workers, by name
        self.workers = {**supervisors, _OVERFLOW: overflow} if overflow else self.supervisors
        self._lexicon = _matcher(tuple(lexicon.items())) if lexicon else None
        self._make_aligners = make_aligners
        self._aligners: WordFinders | None = None
        self._uses_native_words = uses_native_words
        self.limits = limits or Limits()
        self._contexts: set[Context] = set()
        self._turns = Turns(STEPS_AT_ONCE)
        self._openings = Turns()
        self._has_stretch = False  # is loaded: 35 MB and 0.1 s, for speeds that an engine lacks

    async def start(self) -> None:
        """Start the workers.

        Raises:
            EngineError: a worker cannot start; those that have started are stopped again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for supervisor in self.supervisors.values():
                    group.create_task(supervisor.start())
            if self._overflow is not None:
                await self._overflow.start(is_required=False)
            if self._make_aligners is not None and (self._overflow or not self._is_all_native):
                self._aligners = self._make_aligners()
                await self._aligners.start()
        except* VoiceAgentError as errors:
            await self.close()
            raise errors.exceptions[0] from None
        able = {name: each.capabilities for name, each in self.supervisors.items()}
        self.voices = VoiceBook(able)
        if self._clones_of and any(each.clone_width is not None for each in able.values()):
            from voiceagent_tts.clones import CloneBook  # here: few engines speak clones

            self.voices = CloneBook(able, self._clones_of)

    async def close(self) -> None:
        """Cancel every context and stop the workers; idempotent."""
        for context in list(self._contexts):
            context.cancel()
        closing = (*self.workers.values(), *self.aligners.values())
        await asyncio.gather(*(supervisor.close() for supervisor in closing))

    def fail_contexts(self, error: VoiceAgentError, owner: str | None = None) -> None:
        """End the open contexts of `owner`, by default all, with `error`."""
        for context in list(self._contexts):
            if owner in (None, context.request.options.owner):
                context.fail(error)

    @property
    def contexts_active(self) -> int:
        """Contexts that are open and have not ended, without the server's own probes."""
        return sum(not context.request.options.is_probe for context in self._contexts)

    @property
    def audio_at(self) -> float:
        """`time.monotonic()` of the last audio from a worker that runs."""
        workers = (supervisor.worker for supervisor in self.workers.values())
        return max((each.audio_at for each in workers if each is not None), default=-math.inf)

    @property
    def rows_used(self) -> int:
        """Rows of all workers that are in use."""
        return sum(worker.rows_used for worker in self._running())

    @property
    def rows(self) -> int:
        """Rows of all workers that run."""
        return sum(worker.capabilities.max_rows for worker in self._running())

    def _running(self, voice: Voice | None = None) -> list[WorkerClient]:
        of = self.supervisors.values() if voice is None else self._supervisors_of(voice)
        return [each.worker for each in of if each.worker is not None]

    @property
    def aligners(self) -> Mapping[str, Supervisor]:
        """The aligner workers by name."""
        return {} if self._aligners is None else self._aligners.supervisors

    async def open(
        self,
        options: ContextOptions,
        on_event: Callable[[], None] | None = None,
        on_end: OnEnd = lambda context, report: None,
        on_free: OnFree | None = None,
        on_surplus: OnSurplus | None = None,
        *,
        owner: str = "",
    ) -> Context:
        """Reserve a row for a new context of an owner, whose turns at the event loop it takes.

        Raises:
            InvalidRequestError: an unknown voice or language, or a request that the voice's engine
                cannot serve.
            OverloadedError: no row is free, or the worker is restarting.
        """
        voice = self._voice_for(options)
        for load in self.before_open:
            await load(voice)
        request = self._resolve(options, voice, self.supervisors[voice.worker].capabilities)
        if request.stretch != 1.0 and not self._has_stretch:
            await asyncio.to_thread(importlib.import_module, "voiceagent_tts.audio.stretch")
            self._has_stretch = True
        worker, request = self._find_row(await self._running_in_turn(voice, owner), request)
        find_worker: FindWorker | None = None
        is_free = _named_language(options) is None and leaves_choice(options.voice)
        if is_free and request.voice.worker != _OVERFLOW:  # a context stays with the overflow
            find_worker = functools.partial(self._find_worker, request)
        speaking, make_words = self._connect(worker, request)
        context = Context(
            speaking,
            request,
            self.limits,
            make_words,
            on_event=on_event,
            on_end=functools.partial(self._on_end, on_end),
            on_free=on_free,
            on_surplus=on_surplus,
            turns=self._turns,
            owner=owner,
            find_worker=find_worker,
        )
        self._contexts.add(context)
        return context

    async def _running_in_turn(self, voice: Voice, owner: str) -> list[WorkerClient]:
        """The workers that speak a voice, at the owner's turn: many may have waited for one."""
        while True:
            if not self._running(voice):
                supervisor = self.supervisors[voice.worker]
                await supervisor.wait_for_worker(self.limits.worker_wait_s)
            await self._openings.wait(owner)
            if running := self._running(voice):
                return running

    def _find_row(
        self, workers: list[WorkerClient], request: ContextRequest
    ) -> tuple[WorkerClient, ContextRequest]:
        """The worker with the most free rows if it has one, else that of the overflow."""
        options, free = request.options, _free_rows(workers, request.options)
        worker = max(free, key=free.__getitem__)
        if free[worker] > 0:
            return worker, request
        overflow = None if self._overflow is None else self._overflow.free_worker
        if overflow is not None and not options.is_probe:
            voices = {name.casefold(): name for name in overflow.capabilities.voices}
            name = voices.get(request.voice.name.casefold(), overflow.capabilities.voices[0])
            voice = Voice(name, _OVERFLOW)
            with contextlib.suppress(InvalidRequestError):  # the voice's own engine can serve it
                return overflow, self._resolve(options, voice, overflow.capabilities)
        raise OverloadedError(
            f"all {_rows(worker, options)} rows of this voice's engine are in use",
            retry_after_ms=round(1000 * worker.stats.metrics.get("retry_after_seconds", 0.5)),
        )

    def check(self, options: ContextOptions) -> ContextRequest:
        """Check options for a context that is opened later; return what its engine would receive.

        Raises:
            InvalidRequestError: an unknown voice or language, or options that the voice's engine
                cannot serve.
        """
        voice = self._voice_for(options)
        return self._resolve(options, voice, self.supervisors[voice.worker].capabilities)

    def prepare(self, options: ContextOptions) -> None:
        """Ask workers to prepare for such a context, whose first audio is then sooner."""
        request = self.check(options)
        for worker in self._running(request.voice):
            worker.send(preparation_of(request))

    def _voice_for(self, options: ContextOptions) -> Voice:
        if (language := _named_language(options)) is None:
            return self.voices.seen_by(options.owner).resolve(options.voice)
        code = normalize_language(language)
        return self.voices.seen_by(options.owner).for_language(options.voice, code)

    def _find_worker(
        self, request: ContextRequest, language: str
    ) -> tuple[Worker, ContextRequest] | None:
        """Find a worker for a context whose first text is in `language`; None to keep its own.

        An open context cannot move to a worker that reports no word times, or that changes the
        speed in another way. Its text keeps the lexicons that the context was opened with.
        """
        voices = self.voices.seen_by(request.options.owner)
        voice = voices.for_language(request.options.voice, language)
        if voice == request.voice:
            return None
        first, other = (
            self.supervisors[each.worker].capabilities for each in (request.voice, voice)
        )
        found = self._resolve(request.options, voice, other)
        free = _free_rows(self._running(voice), found.options)
        most_free = max(free, key=free.__getitem__, default=None)
        is_alike = self._is_native(first) and self._is_native(other)
        is_alike = is_alike and found.stretch == request.stretch
        if not is_alike or most_free is None or free[most_free] <= 0:
            return None
        worker, _ = self._connect(most_free, found)
        return worker, found

    def _supervisors_of(self, voice: Voice) -> list[Supervisor]:
        first = self.supervisors[voice.worker]
        if first.group is None:
            return [first]
        return [each for each in self.supervisors.values() if each.group == first.group]

    def _connect(
        self, worker: WorkerClient, request: ContextRequest
    ) -> tuple[Worker, MakeWords | None]:
        """Return a context's worker, and what makes its words; None if the engine reports them."""
        finders: WordFinders | None = None
        if not self._is_native(worker.capabilities):
            assert self._aligners is not None, "expected make_aligners for an engine without words"
            finders = self._aligners if request.options.wants_words else self._aligners.absent
        if self.proxy is not None:
            return self.proxy(worker, request, finders)
        return worker, None if finders is None else finders.make_words

    @property
    def has_word_times(self) -> bool:
        """Whether each engine sends word times, or aligners find them; else there are estimates."""
        return self._is_all_native or bool(self.aligners)

    @property
    def _is_all_native(self) -> bool:
        return all(self._is_native(each.capabilities) for each in self.supervisors.values())

    def _is_native(self, capabilities: Capabilities) -> bool:
        return capabilities.has_native_words and self._uses_native_words

    def _resolve(
        self, options: ContextOptions, voice: Voice, capabilities: Capabilities
    ) -> ContextRequest:
        name, language, warnings = _named_language(options), None, ()
        languages = self.voices.languages(voice, capabilities)
        checked_languages = () if has_own_language(voice, capabilities) else languages
        if name is not None:
            language, change = spoken_language(name, voice, languages)
            warnings = (ContextWarned(WarningCode.ACCENT_UNAVAILABLE, change),) if change else ()
        feeding = _feeding(options.text_feeding, voice, capabilities)
        speech, stretch = options.speech, options.speech.speed
        if capabilities.has_native_speed:
            native_speed = min(max(speech.speed, MIN_NATIVE_SPEED), MAX_NATIVE_SPEED)
            speech, stretch = replace(speech, speed=native_speed), speech.speed / native_speed
        return ContextRequest(
            options,
            voice,
            language,
            feeding,
            speech,
            stretch,
            self._lexicons_of(options, voice),
            capabilities.reads_ipa,
            warnings,
            languages=checked_languages,
        )

    def _lexicons_of(self, options: ContextOptions, voice: Voice) -> "tuple[EntryMatcher, ...]":
        given = _matcher(tuple(options.lexicon.items()), options.owner) if options.lexicon else None
        lexicons = given, self.find_lexicon(voice), self._lexicon
        return tuple(each for each in lexicons if each is not None)

    def _on_end(self, on_end: OnEnd, context: Context, report: ContextReport) -> None:
        self._contexts.discard(context)
        on_end(context, report)


@lru_cache(maxsize=64)
def _matcher(items: "tuple[tuple[str, Pronunciation], ...]", _key: object = "") -> "EntryMatcher":
    """Build a lexicon's matcher once per key: a shared one would reveal lexicons by its speed."""
    from voiceagent_tts.text.entries import EntryMatcher

    return EntryMatcher(dict(items))


def _rows(worker: WorkerClient, options: ContextOptions) -> int:
    """Rows of a worker that contexts with these options may use."""
    capabilities = worker.capabilities
    batch_rows = capabilities.max_batch_rows if options.speech.is_batch else None
    return batch_rows or capabilities.max_rows


def _free_rows(workers: list[WorkerClient], options: ContextOptions) -> dict[WorkerClient, int]:
    return {worker: _rows(worker, options) - worker.rows_used for worker in workers}


def _named_language(options: ContextOptions) -> str | None:
    """Return the language that the client requested; None to detect it for each segment."""
    name = options.language
    return None if name is None or name.casefold() == "auto" else name


def _feeding(wanted: Feeding | None, voice: Voice, capabilities: Capabilities) -> Feeding:
    if wanted not in (None, *capabilities.text_feeding):
        raise InvalidRequestError(
            f"text_feeding: expected {' or '.join(capabilities.text_feeding)} for the engine of "
            f"voice {voice.name!r}, got {wanted!r}",
            code=ErrorCode.INVALID_PARAM,
        )
    return wanted or capabilities.text_feeding[0]
