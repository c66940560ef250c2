"""What is known of cloned voices beside their sound: consents, owners and tags, as files.

The files are beside those of the voices, so that all servers that share these know the same. Knows
no requests and nothing of how voices are made.
"""

import logging
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.voice_file import read_header
from voiceagent_tts.voices import (
    CLONE_SUFFIX,
    CONSENTS,
    RECORDS,
    SeenClones,
    VoiceFolder,
    own_name,
    stored_name,
)

Tag = Literal["testing", "production"]

_CONSENT_ID = r"cons_[0-9a-f]{32}"
_NO_KEY = ""
"""What owns the voices that are only an admin's: no key has this id."""
_logger = logging.getLogger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Consent(BaseModel):
    """That a person agreed to a copy of his or her voice.

    Attributes:
        id: unique, never used again.
        name: who agreed.
        language: language of the recorded phrase.
        method: whether the person said so in a recording, or the caller attests it.
        statement: what the caller attests; None with a recording.
        key_id: the key that added it; None on a server without keys.
        created_at: when, in UTC.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=lambda: f"cons_{uuid.uuid4().hex}", pattern=f"^{_CONSENT_ID}$")
    name: str
    language: str
    method: Literal["recording", "attest"]
    statement: str | None = None
    key_id: str | None = None
    created_at: str = Field(default_factory=_now)


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
    created_at: str = Field(default_factory=_now)

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


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks for voices and consents.

    Args:
        key_id: the key; None on a server without keys.
        is_admin: whether everything is the viewer's, as on a server without keys.
    """

    key_id: str | None
    is_admin: bool

    def owns(self, record: VoiceRecord | Consent | None) -> bool:
        """Whether the viewer may change, remove or download it; None stands for a clone alone."""
        return self.is_admin or (record is not None and record.key_id == self.key_id)

    def sees(self, record: VoiceRecord | None) -> bool:
        """Whether the viewer may speak with a voice: also with one that belongs to no key."""
        is_everyones = record is None or record.is_shared or record.key_id is None
        return is_everyones or self.owns(record)


EVERYTHING = Viewer(None, is_admin=True)
"""What commands see, and a server without keys."""

_UNREADABLE = VoiceRecord(name="unreadable", key_id=_NO_KEY)
"""Stands for a record that cannot be read: whose the voice is, or which key may speak with it, is
not known."""

_Record = TypeVar("_Record", Consent, VoiceRecord)


class VoiceRecords:
    """Keeps records of the voices in a folder, and of the consents to them.

    Args:
        clones: the voices.
    """

    def __init__(self, clones: VoiceFolder) -> None:
        self._clones = clones
        self._voices = clones.path / RECORDS
        self._consents = clones.path / CONSENTS
        self._read_records: dict[str, tuple[object, VoiceRecord]] = {}
        """Version of the file and record of each voice that was asked for."""

    # Voices.

    def voices(self) -> dict[str, VoiceRecord]:
        """Return the records of the stored voices by the names of their files.

        One that cannot be read is left out.

        Raises:
            InvalidRequestError: none can be read.
        """
        records = _read_all(self._voices, VoiceRecord)
        return {stored: record for stored, record in records if stored in self._clones}

    def seen_by(self, viewer: Viewer) -> SeenClones:
        """The clones that a viewer may know of."""
        return SeenClones(
            self._clones, viewer.key_id, lambda stored: viewer.sees(self.voice(stored))
        )

    def voice(self, stored: str) -> VoiceRecord | None:
        """Return the record of a voice, by the name of its file; older voices have none.

        While it cannot be read, the voice is nobody's. Its file is read once: every context with
        the voice asks.
        """
        try:
            return self._record(stored)
        except InvalidRequestError:
            return _UNREADABLE

    def _record(self, stored: str) -> VoiceRecord | None:
        path = self._voices / f"{stored}.json"
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        known = self._read_records.get(stored)
        if known is not None and known[0] == version:
            return known[1]
        record = _read(path, VoiceRecord)
        if record is not None:
            self._read_records[stored] = version, record
        return record

    def owned_by(self, key_id: str | None) -> set[str]:
        """Return the names of the files of the voices that a key has added."""
        return {stored for stored, each in self.voices().items() if each.key_id == key_id}

    def add_voice(self, record: VoiceRecord, voice_file: bytes) -> None:
        """Store a voice and its record, within `changing`; replaces an earlier voice of its name.

        Raises:
            InvalidRequestError: the folder is not writable, or the earlier record not readable.
            OverloadedError: the voices cannot be reached.
        """
        earlier = self._record(record.stored) if record.stored in self._clones else None
        # A voice is never without the record of its consent, nor the earlier one another key's,
        # also if this ends in the middle.
        unfinished = record if earlier is None else _replacing(earlier, record)
        self._save_record(record.stored, unfinished)
        self._clones.save(record.stored, voice_file)
        if unfinished != record:
            self._save_record(record.stored, record)

    def _save_record(self, stored: str, record: VoiceRecord) -> None:
        self._clones.write(f"{RECORDS}/{stored}.json", record.model_dump_json().encode())

    def remove_voice(self, name: str, viewer: Viewer | None = None) -> None:
        """Delete the voice that a viewer calls so, and its record; without, what there is of it.

        Raises:
            InvalidRequestError: the voice is not the viewer's, or the folder is not writable.
            OverloadedError: the voices cannot be reached.
        """
        with self._clones.changing():
            self._remove(stored_name(name) if viewer is None else self.owned_file(name, viewer))

    def owned_file(self, name: str, viewer: Viewer) -> str:
        """The name of the file of a voice that a viewer may change, by the viewer's name of it.

        Raises:
            InvalidRequestError: the viewer has no voice of this name.
        """
        stored = self.seen_by(viewer).find(name)
        if stored is None or not viewer.owns(self.voice(stored)):
            raise _not_owned(name)
        return stored

    def _remove(self, stored: str) -> None:
        # Also one that only other servers can read now.
        self._clones.delete(f"{stored}{CLONE_SUFFIX}")
        self._clones.delete(f"{RECORDS}/{stored}.json")

    # Consents.

    def consents(self, viewer: Viewer = EVERYTHING) -> list[Consent]:
        """Return the consents of a viewer, oldest first; one that cannot be read is left out.

        Raises:
            InvalidRequestError: none can be read.
        """
        consents = (consent for _, consent in _read_all(self._consents, Consent))
        return sorted(filter(viewer.owns, consents), key=lambda each: each.created_at)

    def consent(self, consent_id: str, viewer: Viewer = EVERYTHING) -> Consent:
        """Return a consent.

        Raises:
            InvalidRequestError: the viewer has none of this id, it was withdrawn, or it cannot be
                read.
        """
        is_id = re.fullmatch(_CONSENT_ID, consent_id) is not None
        consent = _read(self._consents / f"{consent_id}.json", Consent) if is_id else None
        if consent is None or not viewer.owns(consent):
            raise InvalidRequestError(
                f"expected the id of a consent, got {consent_id[:64]!r}; it may be withdrawn",
                code=ErrorCode.NOT_FOUND,
            )
        return consent

    def save_consent(self, consent: Consent, voice_file: bytes | None) -> None:
        """Store a consent, and the voice of its recording.

        Raises:
            InvalidRequestError: the folder is not writable.
            OverloadedError: the voices cannot be reached.
        """
        if voice_file is not None:
            self._clones.write(f"{CONSENTS}/{consent.id}.voice", voice_file)
        self._clones.write(f"{CONSENTS}/{consent.id}.json", consent.model_dump_json().encode())

    def similarity(self, consent: Consent, voice_file: bytes) -> float | None:
        """Cosine of the speaker embeddings of a consent and a voice; None if one has none.

        Raises:
            InvalidRequestError: the voice of the consent cannot be read.
        """
        path = self._consents / f"{consent.id}.voice"
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        agreed, given = speaker_embedding(stored), speaker_embedding(voice_file)
        if agreed is None or given is None or agreed.shape != given.shape:
            return None
        norms = float(np.linalg.norm(agreed) * np.linalg.norm(given))
        return float(np.dot(agreed, given)) / norms if norms else None

    def withdraw(self, consent_id: str, viewer: Viewer = EVERYTHING) -> list[str]:
        """Delete a consent, its recording's voice, and every voice that was made with it.

        Returns:
            The names of the deleted voices.

        Raises:
            InvalidRequestError: the viewer has none of this id, the folder is not writable, or the
                record of a voice cannot be read; then nothing is deleted.
            OverloadedError: the voices cannot be reached; some may be deleted.
        """
        with self._clones.changing():
            consent = self.consent(consent_id, viewer)
            records = [(path.stem, _read(path, VoiceRecord)) for path in _paths(self._voices)]
            files = sorted(
                stored for stored, each in records if each and consent.id in each.consent_ids
            )
            for stored in files:
                self._remove(stored)
            for suffix in ("voice", "json"):
                self._clones.delete(f"{CONSENTS}/{consent.id}.{suffix}")
        return [self.seen_by(viewer).shown(stored) for stored in files]


def _not_owned(name: str) -> InvalidRequestError:
    """The refusal of a voice that is not the caller's: for it, there is none of this name."""
    return InvalidRequestError(
        f"expected the name of a cloned voice of this key, got {name[:64]!r}",
        code=ErrorCode.NOT_FOUND,
    )


def _replacing(earlier: VoiceRecord, record: VoiceRecord) -> VoiceRecord:
    """The record until the voice is replaced; of no key, if the two are not one key's."""
    replaced = earlier.consent_ids - record.consent_ids
    unfinished = record.model_copy(update={"replaced_consent_ids": replaced})
    if (earlier.key_id, earlier.is_shared) == (record.key_id, record.is_shared):
        return unfinished
    return unfinished.model_copy(update={"key_id": _NO_KEY, "is_shared": False})


def speaker_embedding(voice_file: bytes) -> npt.NDArray[np.float32] | None:
    """The speaker embedding in a voice file: [D] float32; None if it has none."""
    try:
        header, tensors_at = read_header(voice_file)
        entry = header["speaker_embedding"]
        start, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        return np.frombuffer(voice_file[tensors_at + start : tensors_at + end], "<f4")
    except (ValueError, KeyError, TypeError, AssertionError):
        return None


def _read_all(folder: Path, kind: type[_Record]) -> Iterator[tuple[str, _Record]]:
    """Read the records of a folder by name, without those that cannot be read."""
    for path in _paths(folder):
        try:
            record = _read(path, kind)
        except InvalidRequestError:
            continue
        if record is not None:
            yield path.stem, record


def _paths(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == ".json"]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    """Read a record; None if there is none.

    Raises:
        InvalidRequestError: it is damaged, or cannot be read now.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError | ValidationError) -> InvalidRequestError:
    """The error of a file that cannot be read; only the log has its name, which may be secret."""
    reason = error.strerror if isinstance(error, OSError) else "it is damaged"
    _logger.warning("%s cannot be read: %s", path, reason)
    return InvalidRequestError(
        f"expected to read the records of voices and consents, one cannot be read: {reason}; see "
        "the server's log for its name, repair or delete it, and try again",
        code=ErrorCode.STORAGE_UNAVAILABLE,
    )
