"""Puts the cache between the contexts of a server and their workers."""

from dataclasses import replace

from voiceagent_tts.plugins.cache.caching_worker import CachingWorker
from voiceagent_tts.plugins.cache.phrases import PhraseVoice
from voiceagent_tts.plugins.cache.store import ContextPhrases, PhraseCache, params_of
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.synthesizer import WordFinders
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.synthesizer.workers import Worker
from voiceagent_tts.voices import Voice


class CachingProxy:
    """Puts a `CachingWorker` in front of the worker of each context; see `Synthesizer.proxy`."""

    def __init__(self, cache: PhraseCache) -> None:
        self.cache = cache

    async def load(self, voice: Voice) -> None:
        """Read what a clone's phrases belong to: its file, if it is new."""
        if voice.stored:
            await self.cache.voices.load(voice.stored)

    def connect(
        self, worker: Worker, request: ContextRequest, finders: WordFinders | None
    ) -> tuple[Worker, MakeWords | None]:
        """Return what a context uses in place of its worker, and what makes its words."""
        phrases = self._phrases_of(worker, request, finders)
        if phrases is None:
            return worker, None if finders is None else finders.make_words
        caching = CachingWorker(worker, phrases, request)
        if finders is None:
            return caching, None
        from voiceagent_tts.plugins.cache.caching_aligners import make_words  # here: few engines

        return caching, make_words(caching, finders)

    def _phrases_of(
        self, worker: Worker, request: ContextRequest, finders: WordFinders | None
    ) -> ContextPhrases | None:
        """The cache for a context; None for one that does not use it, or sounds like no other."""
        options, capabilities = request.options, worker.capabilities
        if options.cache == "off" or options.is_probe:
            return None
        owner = "" if options.cache == "fill" else options.owner or ""
        voice = PhraseVoice(request.voice.name)
        if request.voice.stored:
            voice = self.cache.voices.known(request.voice.stored)
        voice = replace(voice, owner=owner)
        params = params_of(capabilities, voice, request.speech, request.feeding)
        if params is None:
            return None
        return ContextPhrases(
            self.cache,
            params,
            needs_words=finders is None or bool(finders.supervisors),
            lacks_lead=not request.speech.keeps_silence,
            has_pauses=capabilities.has_pauses,
            is_filling=options.cache == "fill",
        )
