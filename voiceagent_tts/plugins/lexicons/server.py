"""The lexicons of the voices of a server: `NAME.lexicon.toml` is that of the voice `NAME`."""

import asyncio
from functools import lru_cache
from pathlib import Path

import structlog

from voiceagent_tts.clones import file_version, stored_name
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.lexicons.reader import LexiconReader
from voiceagent_tts.server.state import ServerHooks
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.voices import Voice

SUFFIX = ".lexicon.toml"

_log = structlog.get_logger(__name__)


def add_to_server(hooks: ServerHooks) -> None:
    """Have contexts spoken with the lexicons of their voices."""
    lexicons = FolderLexicons(hooks.state.settings.clones_folder)
    hooks.state.synthesizer.before_open.append(lexicons.load)
    hooks.state.synthesizer.find_lexicon = lexicons.find
    hooks.state.on_close.append(lexicons.close)


class FolderLexicons:
    """Finds the lexicons of voices in a folder; see `Synthesizer.find_lexicon`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_closed = False
        self._reader: LexiconReader | None = None
        self._read_ones: dict[str, tuple[object, EntryMatcher | None]] = {}
        """Version and lexicon of each loaded voice that has one; None for an invalid lexicon."""
        self._reading: dict[str, tuple[object, asyncio.Task[None]]] = {}
        """For each voice whose lexicon is being read: the version, and the task that reads it."""

    async def load(self, voice: Voice) -> None:
        """Read the lexicon of a voice if it is new or has changed.

        Reads in a process, because a lexicon of 20,000 entries takes 0.3 s, and once for all
        contexts that wait for it. An invalid lexicon is logged and ignored.
        """
        name = voice.engine_name
        version = self._version(name)
        if version is None:
            self._read_ones.pop(name, None)
        elif name not in self._read_ones or self._read_ones[name][0] != version:
            reading_version, reading = self._reading.get(name, (None, None))
            if reading is None or reading.done() or reading_version != version:
                reading = asyncio.create_task(self._keep(name, version))
                self._reading[name] = version, reading
            await asyncio.shield(reading)  # a context that is cancelled leaves it to the others

    def find(self, voice: Voice) -> EntryMatcher | None:
        """Return the lexicon of a voice, which is that of the last `load`; None without one."""
        return self._read_ones.get(voice.engine_name, (None, None))[1]

    async def close(self) -> None:
        """End the process that reads, and start none again; idempotent."""
        self._is_closed = True
        if self._reader is not None:
            await self._reader.close()

    def _version(self, voice: str) -> object:
        """A value that changes with the lexicon of a voice; None if it has none."""
        try:
            return file_version((self._folder / _file_of(voice)).stat())
        except (InvalidRequestError, OSError):
            return None

    async def _keep(self, voice: str, version: object) -> None:
        self._read_ones[voice] = version, await self._read(voice)

    async def _read(self, voice: str) -> EntryMatcher | None:
        if self._is_closed:
            return None
        self._reader = self._reader or LexiconReader()
        try:
            return await self._reader.read(self._folder / _file_of(voice))
        except InvalidRequestError as error:
            _log.error("lexicon_ignored", voice=voice, error=error.message)
            return None


@lru_cache(maxsize=1_000)
def _file_of(voice: str) -> str:
    """Name of the file of a voice's lexicon, for which every context asks."""
    return f"{stored_name(voice)}{SUFFIX}"
