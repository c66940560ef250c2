"""Find a stored voice by its id, which the upload of its recording has answered."""

import re
import time
from pathlib import Path

from voiceagent_tts.server.voice_records import VoiceRecords
from voiceagent_tts.voices import VoiceFolder

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COARSE_NS = 100_000_000
"""Two changes of a folder that are nearer may have the same time."""


class VoiceIds:
    """The ids of the voices in a folder, read again when a voice or a record has changed.

    Any client may ask for an id: the work does not grow with how often it does.

    Args:
        clones: the voices; other servers may add some.
        records: their records, which have the ids.
    """

    def __init__(self, clones: VoiceFolder, records: VoiceRecords) -> None:
        self._clones = clones
        self._records = records
        self._names: dict[str, str] = {}
        """Names of the voices' files by id, at `_version`."""
        self._version: tuple[int, int] | None = None

    def find(self, voice_id: str) -> str | None:
        """Return the name of the file of the voice with an id; None without one."""
        if not _ID.fullmatch(voice_id):
            return None
        version = _changed_ns(self._clones.path), _changed_ns(self._records.files.path("").parent)
        if version != self._version:
            records = ((name, self._records.voice(name)) for name in self._clones.names())
            self._names = {record.id: name for name, record in records if record is not None}
            is_at_rest = time.time_ns() - max(version) > _COARSE_NS
            self._version = version if is_at_rest else None
        return self._names.get(voice_id)


def _changed_ns(folder: Path) -> int:
    """When a file was last added, replaced or removed; 0 if the folder cannot be read."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
