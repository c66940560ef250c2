"""What is known of cloned voices beside their sound: consents, owners and tags, in a folder.

The folder is that of the voices, so that all servers that share it know the same. Knows no requests
and nothing of how voices are made.
"""

import contextlib
import fcntl
import json
import os
import secrets
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.voices import VoiceFolder

Tag = Literal["testing", "production"]

_CONSENT_ID = r"cons_[0-9a-f]{32}"
_log = structlog.get_logger(__name__)


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
        tag: what the voice is for.
        key_id: the key that added it; None on a server without keys.
        created_at: when, in UTC.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    consent_id: str | None = None
    tag: Tag = "production"
    key_id: str | None = None
    created_at: str = Field(default_factory=_now)


_Record = TypeVar("_Record", Consent, VoiceRecord)


class VoiceRecords:
    """Keeps records of the voices in a folder, and of the consents to them.

    Args:
        clones: the voices.
    """

    def __init__(self, clones: VoiceFolder) -> None:
        self._clones = clones
        self._voices = clones.path / "records"
        self._consents = clones.path / "consents"

    # Voices.

    def voices(self) -> dict[str, VoiceRecord]:
        """Return the records of the stored voices by name; older voices have none."""
        records = _read_all(self._voices, VoiceRecord)
        return {each.name: each for each in records if each.name in self._clones}

    def owned_by(self, key_id: str | None) -> set[str]:
        """Return the names of the voices that a key has added."""
        return {name for name, each in self.voices().items() if each.key_id == key_id}

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Let no other process that shares the folder, and no other thread, add a voice meanwhile.

        Raises:
            InvalidRequestError: the folder is not writable.
        """
        path = self._voices / ".lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("wb")
        except OSError as error:
            raise _not_writable(path, error) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file
            yield

    def save_voice(self, record: VoiceRecord) -> None:
        """Store the record of a voice; replaces that of an earlier voice of the same name.

        Raises:
            InvalidRequestError: the folder is not writable.
        """
        _write(self._voices / f"{record.name}.json", record.model_dump_json().encode())

    def forget_voice(self, name: str) -> None:
        """Delete the record of a voice, if it has one."""
        (self._voices / f"{name}.json").unlink(missing_ok=True)

    def remove_voice(self, name: str) -> None:
        """Delete a voice and its record; idempotent.

        Raises:
            InvalidRequestError: the folder is not writable.
        """
        if name in self._clones:
            self._clones.remove(name)
        self.forget_voice(name)

    # Consents.

    def consents(self) -> list[Consent]:
        """Return all consents, oldest first."""
        return sorted(_read_all(self._consents, Consent), key=lambda each: each.created_at)

    def consent(self, consent_id: str) -> Consent:
        """Return a consent.

        Raises:
            InvalidRequestError: there is none of this id, or it was withdrawn.
        """
        known = {each.id: each for each in self.consents()}
        if consent_id not in known:
            raise InvalidRequestError(
                f"expected the id of a consent, got {consent_id[:64]!r}; it may be withdrawn",
                code=ErrorCode.NOT_FOUND,
            )
        return known[consent_id]

    def save_consent(self, consent: Consent, voice_file: bytes | None) -> None:
        """Store a consent, and the voice of its recording.

        Raises:
            InvalidRequestError: the folder is not writable.
        """
        if voice_file is not None:
            _write(self._consents / f"{consent.id}.voice", voice_file)
        _write(self._consents / f"{consent.id}.json", consent.model_dump_json().encode())

    def similarity(self, consent: Consent, voice_file: bytes) -> float | None:
        """Cosine of the speaker embeddings of a consent and a voice; None if one has none."""
        try:
            stored = (self._consents / f"{consent.id}.voice").read_bytes()
        except OSError:
            return None
        agreed, given = speaker_embedding(stored), speaker_embedding(voice_file)
        if agreed is None or given is None or agreed.shape != given.shape:
            return None
        norms = float(np.linalg.norm(agreed) * np.linalg.norm(given))
        return float(np.dot(agreed, given)) / norms if norms else None

    def withdraw(self, consent_id: str) -> list[str]:
        """Delete a consent, its recording's voice, and every voice that was made with it.

        Returns:
            The names of the deleted voices.

        Raises:
            InvalidRequestError: there is none of this id, or the folder is not writable.
        """
        consent = self.consent(consent_id)
        names = [name for name, each in self.voices().items() if each.consent_id == consent.id]
        for name in names:
            self.remove_voice(name)
        for suffix in ("voice", "json"):
            (self._consents / f"{consent.id}.{suffix}").unlink(missing_ok=True)
        return sorted(names)


def speaker_embedding(voice_file: bytes) -> npt.NDArray[np.float32] | None:
    """The speaker embedding in a voice file: [D] float32; None if it has none.

    Source: the safetensors format, a JSON header after its length, and then the tensors.
    """
    try:
        (length,) = struct.unpack("<Q", voice_file[:8])
        entry = json.loads(voice_file[8 : 8 + length])["speaker_embedding"]
        start, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        return np.frombuffer(voice_file[8 + length + start : 8 + length + end], "<f4")
    except (struct.error, ValueError, KeyError, TypeError, AssertionError):
        return None


def _read_all(folder: Path, kind: type[_Record]) -> Iterator[_Record]:
    for path in folder.glob("*.json"):
        try:
            yield kind.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            _log.warning("voice_record_unreadable", path=str(path))


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only here
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path.parent}: cannot save {path.name}: {error.strerror}; set "
        "VOICEAGENT_TTS_VOICES_FOLDER to a writable folder with free space"
    )
