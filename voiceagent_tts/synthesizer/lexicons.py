"""The lexicons that apply to a context: its client's, its voice's, and the server's."""

import asyncio
from functools import lru_cache

import structlog

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.lexicon import Entries, Pronunciation
from voiceagent_tts.synthesizer.lexicon_reader import LexiconReader
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.voices import VoiceFolder

_log = structlog.get_logger(__name__)


class Lexicons:
    """Finds the lexicons of contexts.

    Args:
        server: entries that apply to all contexts.
        folder: the voices' folder, which may have a lexicon for any voice.
    """

    def __init__(self, server: Entries | None = None, folder: VoiceFolder | None = None) -> None:
        self._server = EntryMatcher(server) if server else None
        self._folder = folder
        self._reader = LexiconReader()
        self._of_voices: dict[str, tuple[object, EntryMatcher | None]] = {}
        """Version and lexicon of each voice that was loaded and has one; None for a mistake."""
        self._reading: dict[str, tuple[object, asyncio.Task[None]]] = {}
        """Version of the lexicon that is being read for a voice, by the task that reads it."""

    async def load(self, voice: str) -> None:
        """Read the lexicon of a voice if it is new or has changed.

        Reads in a process, because a lexicon of 20,000 entries takes 0.3 s, and once for all
        contexts that wait for it. A lexicon with a mistake is logged and left out.
        """
        if self._folder is None:
            return
        version = self._folder.lexicon_version(voice)
        if version is None:
            self._of_voices.pop(voice, None)
        elif voice not in self._of_voices or self._of_voices[voice][0] != version:
            reading_version, reading = self._reading.get(voice, (None, None))
            if reading is None or reading.done() or reading_version != version:
                reading = asyncio.create_task(self._keep(voice, version))
                self._reading[voice] = version, reading
            await asyncio.shield(reading)  # a context that is cancelled leaves it to the others

    async def _keep(self, voice: str, version: object) -> None:
        self._of_voices[voice] = version, await self._read(voice)

    async def close(self) -> None:
        """End the process that reads; idempotent."""
        await self._reader.close()

    def of(self, own: Entries, voice: str) -> tuple[EntryMatcher, ...]:
        """Return the lexicons of a context, the first one in the first place.

        Args:
            own: the context's own entries.
            voice: name of its voice, whose lexicon is that of the last `load`.
        """
        given = _matcher(tuple(own.items())) if own else None
        _, of_voice = self._of_voices.get(voice, (None, None))
        return tuple(each for each in (given, of_voice, self._server) if each is not None)

    async def _read(self, voice: str) -> EntryMatcher | None:
        assert self._folder is not None
        try:
            return await self._reader.read(self._folder.lexicon_file(voice))
        except InvalidRequestError as error:
            _log.error("lexicon_ignored", voice=voice, error=error.message)
            return None


@lru_cache(maxsize=64)
def _matcher(entries: tuple[tuple[str, Pronunciation], ...]) -> EntryMatcher:
    """The lexicon that a client sends with every context is built once."""
    return EntryMatcher(dict(entries))
