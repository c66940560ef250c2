"""Records of cloned voices: owners, tags and consents, as files.

They are in the folder of the voices, so that all servers that share it have the same records. A
file that cannot be read is an `InvalidRequestError` (`storage_unavailable`).
"""

import logging
import unicodedata
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voiceagent_tts.clones import VoiceFolder, file_version, may_belong_to, own_name
from voiceagent_tts.errors import ErrorCode, InvalidRequestError

Tag = Literal["testing", "production"]

_FOLDER = "records"
"""Subfolder of the voices: `NAME.json`."""
NO_KEY = ""
"""What owns the voices that are only an admin's: no key has this id."""
_logger = logging.getLogger(__name__)


def now() -> str:
    """The time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_one_line(text: str) -> bool:
    """Whether a text has no line break or other control character, which logs and lists show."""
    return {"Cc", "Zl", "Zp"}.isdisjoint(map(unicodedata.category, text))


class VoiceRecord(BaseModel):
    """A cloned voice.

    Attributes:
        name: its name.
        id: unique; another voice of the same name has another one.
        consent_id: the consent that it was made with; None for one that was only stated.
        consent: who agreed, as stated by who added it; None with a `consent_id`.
        replaced_consent_ids: consents of voices that this one replaces, until it has.
        tag: what the voice is for.
        key_id: the key that added it; None on a server without keys.
        is_shared: whether every key may speak with it, as an admin has added it.
        created_at: when, in UTC.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    consent_id: str | None = None
    consent: str | None = None
    replaced_consent_ids: frozenset[str] = frozenset()
    tag: Tag = "production"
    key_id: str | None = None
    is_shared: bool = False
    created_at: str = Field(default_factory=now)

    @property
    def consent_ids(self) -> frozenset[str]:
        """The consents whose withdrawal deletes the voice."""
        own = () if self.consent_id is None else (self.consent_id,)
        return self.replaced_consent_ids.union(own)

    @property
    def stored(self) -> str:
        """Name of the voice's file: names of everyone's voices are none of a key's own."""
        if self.is_shared or self.key_id is None:
            return self.name
        return own_name(self.name, self.key_id)


class Owned(Protocol):
    """A record of what a key has added."""

    @property
    def key_id(self) -> str | None:
        """The key; None on a server without keys."""
        ...


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks for voices and consents.

    Args:
        key_id: the key; None on a server without keys.
        is_admin: whether everything is the viewer's, as on a server without keys.
    """

    key_id: str | None
    is_admin: bool

    def owns(self, record: Owned | None) -> bool:
        """Whether the viewer may change, remove or download it; None stands for a clone alone."""
        return self.is_admin or (record is not None and record.key_id == self.key_id)

    def sees(self, record: VoiceRecord | None) -> bool:
        """Whether the viewer may speak with a voice: also with one that belongs to no key."""
        is_everyones = record is None or record.is_shared or record.key_id is None
        return is_everyones or self.owns(record)


_UNREADABLE = VoiceRecord(name="unreadable", key_id=NO_KEY)
"""Stands for a record that cannot be read: whose the voice is, or which key may speak with it, is
not known."""

_Record = TypeVar("_Record", bound=BaseModel)


class RecordFiles(Generic[_Record]):
    """The records of one kind, each a file `NAME.json` in a subfolder of the voices."""

    def __init__(self, clones: VoiceFolder, folder: str, kind: type[_Record]) -> None:
        self.clones = clones
        self._folder = folder
        self._kind = kind

    def path(self, name: str) -> Path:
        """Path of a record, which may not exist."""
        return self.clones.path / self._folder / f"{name}.json"

    def read(self, name: str) -> _Record | None:
        """Read a record; None if there is none."""
        path = self.path(name)
        try:
            return self._kind.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise unreadable(path, error) from error

    def readable(self) -> Iterator[tuple[str, _Record]]:
        """Yield the records by name, without those that cannot be read."""
        for name in self.names():
            try:
                record = self.read(name)
            except InvalidRequestError:
                continue
            if record is not None:
                yield name, record

    def names(self) -> list[str]:
        """Return the names of all records."""
        folder = self.clones.path / self._folder
        try:
            return [path.stem for path in folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(folder, error) from error


class VoiceRecords:
    """Keeps the records of the voices in a folder."""

    def __init__(self, clones: VoiceFolder) -> None:
        self.files = RecordFiles(clones, _FOLDER, VoiceRecord)
        """The records by the names of the voices' files; also those of voices that are gone."""
        self.clones = clones
        self._read_records: dict[str, tuple[object, VoiceRecord]] = {}
        """Version of the file and record of each voice that was asked for."""

    def voices(self) -> dict[str, VoiceRecord]:
        """Return the records of the stored voices by the names of their files.

        One that cannot be read is left out.
        """
        found = {name: self.voice(name) for name in self.files.names() if name in self.clones}
        return {name: each for name, each in found.items() if each and each is not _UNREADABLE}

    def is_seen(self, stored: str, viewer: Viewer) -> bool:
        """Whether a viewer may know of the voice in a file."""
        may_be = may_belong_to(stored, viewer.key_id or "")
        return viewer.is_admin or (may_be and viewer.sees(self.voice(stored)))

    def voice(self, stored: str) -> VoiceRecord | None:
        """Return the record of a voice, by the name of its file; older voices have none.

        While it cannot be read, the voice belongs to no key. Its file is read once, because every
        context with the voice asks.
        """
        try:
            return self._record(stored)
        except InvalidRequestError:
            return _UNREADABLE

    def _record(self, stored: str) -> VoiceRecord | None:
        path = self.files.path(stored)
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error
        version = file_version(status)
        known = self._read_records.get(stored)
        if known is not None and known[0] == version:
            return known[1]
        record = self.files.read(stored)
        if record is not None:
            self._read_records[stored] = version, record
        return record


def unreadable(path: Path, error: OSError | ValidationError) -> InvalidRequestError:
    """The error of a file that cannot be read; only the log has its name, which may be secret."""
    reason = error.strerror if isinstance(error, OSError) else "it is damaged"
    _logger.warning("%s cannot be read: %s", path, reason)
    return InvalidRequestError(
        f"expected to read the records of voices and consents, one cannot be read: {reason}; see "
        "the server's log for its name, repair or delete it, and try again",
        code=ErrorCode.STORAGE_UNAVAILABLE,
    )
