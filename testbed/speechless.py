"""A worker that takes all text and says nothing: what a server does about a long text, alone.

Speech of 20,000 characters takes minutes; a server reads the end of a text when its start is
spoken. Here it is spoken at once.
"""

import asyncio
import itertools
from functools import partial
from typing import Any

from voiceagent_tts.core import AudioChunk, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.plugins.cache.proxy import CachingProxy
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.seam.aligner_messages import AlignCommand, Aligned, Expect, Finish
from voiceagent_tts.seam.commands import Append, Command, Submit
from voiceagent_tts.seam.events import AudioStep, Capabilities, ContextAudio, Done, SegmentEnd
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.synthesizer import WordFinders
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.synthesizer.workers import EventHandler, OnFree, Worker
from voiceagent_tts.word_times.aligned_words import AlignedWords
from voiceagent_tts.word_times.aligners import (
    AlignerHandle,
    ContextAligners,
    OnAlignerEvent,
    VoiceLevels,
)


class SpeechlessProxy(CachingProxy):
    """Puts the cache of phrases, and behind it a worker that says nothing, before each worker."""

    def connect(
        self, worker: Worker, request: ContextRequest, finders: WordFinders | None
    ) -> tuple[Worker, MakeWords | None]:
        return super().connect(_Speechless(worker.capabilities), request, None)


class BriefProxy(CachingProxy):
    """As `SpeechlessProxy`, with half a second of sound for the first text, and an aligner.

    The first word leaves by an estimate, and gets a better time later, as all words do.

    Args:
        cache: of phrases.
        has_aligner: whether there is an aligner; without one, all times are estimates.
    """

    def __init__(self, cache: PhraseCache, *, has_aligner: bool = True) -> None:
        super().__init__(cache)
        self._has_aligner = has_aligner

    def connect(
        self, worker: Worker, request: ContextRequest, finders: WordFinders | None
    ) -> tuple[Worker, MakeWords | None]:
        brief = _Speechless(worker.capabilities, ms_to_samples(500))
        return super().connect(brief, request, None)[0], partial(AlignedWords, self._attach)

    def _attach(self, on_event: OnAlignerEvent, recording: str) -> ContextAligners:
        finder: Any = _Finder()
        handles = [AlignerHandle(finder, Source.ONLINE, on_event)] if self._has_aligner else []
        return ContextAligners(handles, recording, VoiceLevels())


class _Speechless:
    """Answers each text as an engine does that has nothing to say of it."""

    def __init__(self, capabilities: Capabilities, samples: int = 0) -> None:
        self.capabilities = capabilities
        self._samples = samples
        self._numbers = itertools.count(1)
        self._handlers: dict[int, EventHandler] = {}

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        number = next(self._numbers)
        self._handlers[number] = handler
        return number

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        self._handlers.pop(context, None)

    def send(self, command: Command | AlignCommand) -> None:
        """Answer a text in a later iteration of the event loop; ignore all else."""
        if isinstance(command, (Submit, Append)):
            asyncio.get_running_loop().call_soon(self._end, command)

    def _end(self, command: Submit | Append) -> None:
        handler = self._handlers.get(command.context)
        if handler is not None:
            context, samples = command.context, self._samples
            if samples and isinstance(command, Submit):
                chunk = AudioChunk(0, b"\x00\x40" * samples)
                handler(AudioStep((ContextAudio(context, chunk),)))
            handler(SegmentEnd(context, command.char_base + len(command.text), samples))
            if not command.more:
                handler(Done(context, samples))


class _Finder(_Speechless):
    """Finds every word that it is told of 300 ms after the start of all audio."""

    def __init__(self) -> None:
        super().__init__(Capabilities("finder", "finder", True, (), (), (), max_rows=1))

    def send(self, command: Command | AlignCommand) -> None:
        if isinstance(command, (Expect, Finish)):
            asyncio.get_running_loop().call_soon(self._answer, command)

    def _answer(self, command: Expect | Finish) -> None:
        handler = self._handlers.get(command.context)
        if handler is not None and isinstance(command, Expect):
            found = tuple(map(_found, command.words))
            handler(Aligned(command.context, found, (), ms_to_samples(500)))
        elif handler is not None:
            handler(Done(command.context, 0))


def _found(word: Word) -> WordTimestamp:
    return WordTimestamp(word, ms_to_samples(300), ms_to_samples(350), confidence=1.0)
