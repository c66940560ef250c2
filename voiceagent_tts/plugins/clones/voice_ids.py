"""Find a stored voice by its id, which the upload of its recording has answered."""

import asyncio
import threading
import time
from pathlib import Path

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords

READ_S = 1.0
"""After this time, and that of reading, an id is known that another server has given out."""
_COARSE_NS = 100_000_000
"""Two changes of a folder that are nearer may have the same time."""


class VoiceIds:
    """The ids of the voices in a folder.

    Any client may ask for an id, which has one record read at most. All records are read in a
    thread, once in `READ_S` at most, and only when a voice or a record has changed.
    """

    def __init__(self, clones: VoiceFolder, records: VoiceRecords) -> None:
        self._clones = clones
        self._records = records
        self._names: dict[str, str] = {}
        """Names of the voices' files by id; some may be gone, or have another id now."""
        self._version: tuple[int, int] | None = None
        """Of the folders, when all records were read; None if they may have changed since."""
        self._changing = threading.Lock()
        self._reading: asyncio.Task[None] | None = None

    def find(self, voice_id: str) -> str | None:
        """Return the name of the file of the voice with an id; None without one."""
        stored = self._names.get(voice_id)
        if stored is None or stored not in self._clones:
            return None
        record = self._records.voice(stored)
        return stored if record is not None and record.id == voice_id else None

    def add(self, record: VoiceRecord) -> None:
        """Know a voice that was just stored; waits while all records are read."""
        with self._changing:
            self._names[record.id] = record.stored

    def read(self) -> None:
        """Read all records if some have changed; takes long where there are many."""
        with self._changing:
            folders = self._clones.path, self._records.files.path("").parent
            version = _changed_ns(folders[0]), _changed_ns(folders[1])
            if version == self._version:
                return
            records = ((name, self._records.voice(name)) for name in self._clones.names())
            self._names = {record.id: name for name, record in records if record is not None}
            is_at_rest = time.time_ns() - max(version) > _COARSE_NS
            self._version = version if is_at_rest else None

    async def start(self) -> None:
        """Read all records, and go on to read those that change."""
        await asyncio.to_thread(self.read)
        self._reading = asyncio.create_task(self._read_on())

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(READ_S)
            await asyncio.to_thread(self.read)

    async def close(self) -> None:
        """Read no more; idempotent."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})


def _changed_ns(folder: Path) -> int:
    """When a file was last added, replaced or removed; 0 if the folder cannot be read."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
