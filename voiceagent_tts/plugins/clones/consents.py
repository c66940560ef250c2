"""Consents to clones, as files beside the voices: all servers that share these know the same.

Knows no requests and nothing of how voices are made.
"""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from voiceagent_tts.clones import SeenClones, VoiceFolder, read_header
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import (
    changing,
    delete_file,
    write_file,
    write_record,
)
from voiceagent_tts.plugins.clones.stored_voices import remove_voice
from voiceagent_tts.plugins.clones.voice_records import (
    RecordFiles,
    Viewer,
    VoiceRecords,
    now,
    unreadable,
)

_FOLDER = "consents"
"""Subfolder of the voices: `ID.json`, and `ID.voice` of a recording."""
_ID = r"cons_[0-9a-f]{32}"
EVERYTHING = Viewer(None, is_admin=True)
"""What a server without keys sees."""


class Consent(BaseModel):
    """That a person agreed to a copy of his or her voice.

    Attributes:
        id: unique, never used again.
        method: whether the person said so in a recording, or the caller attests it.
        statement: what the caller attests; None with a recording.
        key_id: the key that added it; None on a server without keys.
        created_at: when, in UTC.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=lambda: f"cons_{uuid.uuid4().hex}", pattern=f"^{_ID}$")
    name: str
    language: str
    method: Literal["recording", "attest"]
    statement: str | None = None
    key_id: str | None = None
    created_at: str = Field(default_factory=now)


class Consents:
    """Keeps the consents to the voices in a folder."""

    def __init__(self, clones: VoiceFolder, records: VoiceRecords) -> None:
        self._clones = clones
        self._records = records
        self._files = RecordFiles(clones, _FOLDER, Consent)

    def seen_by(self, viewer: Viewer = EVERYTHING) -> list[Consent]:
        """Return the consents of a viewer, oldest first; one that cannot be read is left out.

        Raises:
            InvalidRequestError: none can be read.
        """
        consents = (consent for _, consent in self._files.readable())
        return sorted(filter(viewer.owns, consents), key=lambda each: each.created_at)

    def find(self, consent_id: str, viewer: Viewer = EVERYTHING) -> Consent:
        """Return a consent.

        Raises:
            InvalidRequestError: the viewer has none of this id, it was withdrawn, or it cannot be
                read.
        """
        is_id = re.fullmatch(_ID, consent_id) is not None
        consent = self._files.read(consent_id) if is_id else None
        if consent is None or not viewer.owns(consent):
            raise InvalidRequestError(
                f"expected the id of a consent, got {consent_id[:64]!r}; it may be withdrawn",
                code=ErrorCode.NOT_FOUND,
            )
        return consent

    def save(self, consent: Consent, voice_file: bytes | None) -> None:
        """Store a consent, and the voice of its recording: both, or nothing.

        Raises:
            InvalidRequestError: the folder is not writable.
            OverloadedError: the voices cannot be reached.
        """
        recording = self._recording_of(consent)
        if voice_file is not None:
            write_file(recording, voice_file)
        try:
            write_record(self._files.path(consent.id), consent)
        except BaseException:
            delete_file(recording)  # nobody could withdraw it
            raise

    def similarity(self, consent: Consent, voice_file: bytes) -> float | None:
        """Cosine of the speaker embeddings of a consent and a voice; None if one has none.

        Raises:
            InvalidRequestError: the voice of the consent cannot be read.
        """
        path = self._recording_of(consent)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error
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
        with changing(self._clones):
            consent = self.find(consent_id, viewer)
            files = sorted(self._made_with(consent.id))
            for stored in files:
                remove_voice(self._records, stored)
            delete_file(self._recording_of(consent))
            delete_file(self._files.path(consent.id))
        seen = SeenClones(self._clones, viewer.key_id)
        return [seen.shown(stored) for stored in files]

    def _recording_of(self, consent: Consent) -> Path:
        return self._clones.path / _FOLDER / f"{consent.id}.voice"

    def _made_with(self, consent_id: str) -> Iterator[str]:
        """Yield the names of the files of the voices that a consent allows."""
        for stored in self._records.files.names():
            record = self._records.files.read(stored)
            if record is not None and consent_id in record.consent_ids:
                yield stored


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
