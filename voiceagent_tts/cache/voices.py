"""The contents of cloned voices, as hashes: phrases belong to contents, not to names."""

import asyncio
import hashlib
from collections.abc import Iterable

from voiceagent_tts.cache.phrase import Spoken
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.voices import VoiceFolder


class VoiceContents:
    """Hashes the files of clones, each version once.

    Args:
        folder: the clones; None on a server without any.
    """

    def __init__(self, folder: VoiceFolder | None) -> None:
        self._folder = folder
        self._known: dict[str, tuple[object, str]] = {}
        """Version and hash of each clone's file."""

    async def load(self, name: str) -> Spoken:
        """Return the voice as it is stored now; its file is read in a thread if it is new."""
        if self._folder is None or name not in self._folder:
            self._known.pop(name, None)
            return Spoken(name)
        return await asyncio.to_thread(self._read, name)

    def is_current(self, spoken: Spoken) -> bool:
        """Whether the voice has not been replaced or removed since it was loaded."""
        version, content = self._known.get(spoken.voice, (None, ""))
        return content == spoken.content and version == self._version(spoken.voice)

    def withdrawn(self, voices: Iterable[Spoken]) -> set[Spoken]:
        """Those that are not stored any more as they were. Reads files, so it runs in a thread."""
        clones = {spoken for spoken in voices if spoken.content}
        return {spoken for spoken in clones if self._read(spoken.voice).content != spoken.content}

    def _read(self, name: str) -> Spoken:
        version = self._version(name)
        if version is None or self._folder is None:
            self._known.pop(name, None)
            return Spoken(name)
        known = self._known.get(name)
        if known is None or known[0] != version:
            try:
                content = hashlib.sha256(self._folder.read(name)).hexdigest()
            except InvalidRequestError:  # removed at this moment
                return Spoken(name)
            self._known[name] = known = (version, content)
        return Spoken(name, known[1])

    def _version(self, name: str) -> object:
        if self._folder is None:
            return None
        try:
            return self._folder.version(name)
        except InvalidRequestError:
            return None
