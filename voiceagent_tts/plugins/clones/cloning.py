"""What makes the clones of a server: its models, its threads and processes, and what is allowed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi import UploadFile

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import changing
from voiceagent_tts.plugins.clones.cloner_processes import CloneModel, ClonerProcesses
from voiceagent_tts.plugins.clones.consents import Consent, Consents
from voiceagent_tts.plugins.clones.messages import VoiceFile
from voiceagent_tts.plugins.clones.stored_voices import add_voice, remove_voice
from voiceagent_tts.plugins.clones.voice_ids import VoiceIds
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.recordings.file_reader import read_audio
from voiceagent_tts.plugins.recordings.places import Places
from voiceagent_tts.server.state import ServerState

MAX_CONSENTS_OF_KEY = 1000
"""Without the setting `voices_per_key`."""
LEAST_SIMILARITY = 0.5
"""Least similarity (cosine) of the speakers of a consent's recording and of a voice made with it.
It was never tried on published weights."""
_MAX_DECODERS = 2
"""A decoder occupies one of the few threads in which new contexts read voices and lexicons."""
_CHANGES_AT_ONCE = 2

_Result = TypeVar("_Result")


class Cloning:
    """Makes clones, and keeps them with the consents to them.

    Attributes:
        places: for requests that make a voice. A place holds a recording in memory: 16 MiB of
            upload, and 6 MB of samples. A clone takes some ten seconds of a CPU, so the last one
            waits for minutes.
    """

    def __init__(self, state: ServerState) -> None:
        self._records = VoiceRecords(state.clones)
        self.consents = Consents(state.clones, self._records)
        self.places = Places("voices are being made")
        self.processes = ClonerProcesses()
        self.ids = VoiceIds(state.clones, self._records)
        self._state = state
        self._clones = state.clones
        self._decoders = asyncio.Semaphore(_MAX_DECODERS)
        """Limits how many uploads are decoded at the same time."""
        self._changes = ThreadPoolExecutor(_CHANGES_AT_ONCE, "voices")

    async def close(self) -> None:
        """Wait for no change of the voices any more; idempotent."""
        await self.ids.close()
        self._changes.shutdown(wait=False, cancel_futures=True)

    # What the models can do.

    def new_voices(self) -> dict[str, bool]:
        """Which voices can be made; the models may change while the server runs."""
        can_clone, can_design = self._clone_model() is not None, self._designer() is not None
        return {"can_clone": can_clone, "can_design": can_design}

    def listed(self) -> dict[str, dict[str, str]]:
        """What the list of voices says of clones, by the names of their files."""
        voices = self._records.voices().items()
        return {stored: {"voice_id": each.id, "tag": each.tag} for stored, each in voices}

    @property
    def model(self) -> CloneModel:
        """The first engine and model that speak clones.

        Raises:
            InvalidRequestError: none does; `not_supported`.
        """
        if (model := self._clone_model()) is not None:
            return model
        raise InvalidRequestError(
            "this server cannot clone voices: expected a Qwen3-TTS Base model among its models, or "
            f"Pocket TTS with its weights for cloning, got {self._engines()}; start it with "
            "--engine qwen3 --model Qwen/Qwen3-TTS-12Hz-0.6B-Base",
            code=ErrorCode.NOT_SUPPORTED,
        )

    @property
    def designer(self) -> str:
        """The voice that is made from a description.

        Raises:
            InvalidRequestError: no model has one; `not_supported`.
        """
        if (voice := self._designer()) is not None:
            return voice
        raise InvalidRequestError(
            "this server cannot design voices: expected a Qwen3-TTS VoiceDesign model among its "
            f"models, and a Base model that speaks the voice, got {self._engines()}; start it with "
            "--engine qwen3 --model Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign --model "
            "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
            code=ErrorCode.NOT_SUPPORTED,
        )

    def _clone_model(self) -> CloneModel | None:
        for supervisor in self._state.synthesizer.supervisors.values():
            capabilities = supervisor.capabilities
            if capabilities.clone_width is not None and supervisor.group is not None:
                return CloneModel(capabilities.engine, supervisor.group)
        return None

    def _designer(self) -> str | None:
        for supervisor in self._state.synthesizer.supervisors.values():
            if supervisor.capabilities.needs_instruct:
                return supervisor.capabilities.voices[0]
        return None

    def _engines(self) -> str:
        return ", ".join(sorted(self._state.models))

    # What is allowed.

    def check_name(self, record: VoiceRecord, *, replace: bool) -> None:
        """Refuse the name of a new clone if it is taken, or that of a built-in voice."""
        if self._check_taken(record, replace=replace):
            return
        if self._state.synthesizer.voices.is_built_in(record.name):
            raise InvalidRequestError(
                f"{record.name!r} is a built-in voice; choose another name",
                code=ErrorCode.INVALID_VOICE,
            )

    def _check_taken(self, record: VoiceRecord, *, replace: bool) -> bool:
        """Whether there is a clone in the place of a new one; refuses it, unless it is replaced.

        Another key has other places: nothing tells that it has a clone of this name.
        """
        is_taken = record.stored in self._clones
        if is_taken and not replace:
            raise InvalidRequestError(
                f"a voice {record.name!r} exists; choose another name, or set `replace`",
                code=ErrorCode.INVALID_VOICE,
            )
        return is_taken

    def check_consent(
        self, viewer: Viewer, consent: str | None, consent_id: str | None
    ) -> Consent | None:
        """The consent of an id, if the settings are content with what the caller gives."""
        if consent_id is None and consent is None:
            raise InvalidRequestError(
                "expected consent or consent_id", code=ErrorCode.INVALID_PARAM
            )
        agreed = None if consent_id is None else self.consents.find(consent_id, viewer)
        if self._state.settings.consent_mode == "recording" and (
            agreed is None or agreed.method != "recording"
        ):
            raise InvalidRequestError(
                "consent_id: expected a consent with a recording; this server clones no voice "
                "without one, see POST /v1/audio/voice_consents",
                code=ErrorCode.CONSENT_REQUIRED,
            )
        return agreed

    def check_speaker(self, consent: Consent | None, voice: VoiceFile) -> None:
        """Refuse a voice that is not that of its recorded consent, where both can be compared."""
        if consent is None or consent.method != "recording":
            return
        similarity = self.consents.similarity(consent, voice.content)
        if similarity is not None and similarity < LEAST_SIMILARITY:
            raise InvalidRequestError(
                f"consent_id: expected the speaker of the consent, got another one (similarity "
                f"{similarity:.2f} of at least {LEAST_SIMILARITY:g}); record both "
                "with one person and one microphone",
                code=ErrorCode.CONSENT_REQUIRED,
            )

    def check_quota(self, record: VoiceRecord) -> None:
        """Refuse one voice more than a key may have."""
        most = self._state.settings.voices_per_key
        if most is None:
            return
        voices = self._records.voices().items()
        owned = {stored for stored, each in voices if each.key_id == record.key_id}
        if len(owned - {record.stored}) >= most:
            raise InvalidRequestError(
                f"expected at most {most} voices of one key, got one more; remove one first",
                code=ErrorCode.VOICE_QUOTA,
            )

    def _check_consents(self, consent: Consent) -> None:
        """Refuse one consent more than a key may have; each is read for every list of consents."""
        most = self._state.settings.voices_per_key or MAX_CONSENTS_OF_KEY
        owned = sum(each.key_id == consent.key_id for each in self.consents.seen_by())
        if owned >= most:
            raise InvalidRequestError(
                f"expected at most {most} consents of one key, got one more; withdraw one first",
                code=ErrorCode.VOICE_QUOTA,
            )

    # What is done.

    async def read_upload(self, file: UploadFile) -> npt.NDArray[np.float32]:
        """Decode a recording; a few at the same time, and only these are in memory.

        Raises:
            InvalidRequestError: as for `read_audio`.
        """
        async with self._decoders:
            return await asyncio.to_thread(read_audio, await file.read())

    async def change(self, change: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run a change of the voices in a thread of its own: their file system may be slow.

        Threads in which contexts read voices and lexicons are not occupied meanwhile.

        Raises:
            Exception: any error of `change`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._changes, change, *arguments)

    def read(self, name: str, viewer: Viewer) -> bytes:
        """Read the file of a voice that a viewer owns.

        Raises:
            InvalidRequestError: the viewer has no voice of this name.
        """
        return self._clones.read(self._owned_file(name, viewer))

    async def save(self, record: VoiceRecord, voice: VoiceFile, *, replace: bool) -> None:
        """Store a voice, unless what allowed it has changed while it was cloned, for seconds.

        Raises:
            InvalidRequestError: its consent was withdrawn, its name was taken, or its key's quota
                was used up meanwhile.
        """
        await self.change(self._save, record, voice, replace)

    def _save(self, record: VoiceRecord, voice: VoiceFile, replace: bool) -> None:
        with changing(self._clones):
            if record.consent_id is not None:
                self.consents.find(record.consent_id)
            self._check_taken(record, replace=replace)
            self.check_quota(record)
            add_voice(self._records, record, voice.content)
        self.ids.add(record)

    async def save_consent(self, consent: Consent, voice_file: bytes | None) -> None:
        """Store a consent, and the voice of its recording.

        Raises:
            InvalidRequestError: its key has the maximum of consents, or the folder is not writable.
        """
        await self.change(self._save_consent, consent, voice_file)

    def _save_consent(self, consent: Consent, voice_file: bytes | None) -> None:
        with changing(self._clones):
            self._check_consents(consent)
            self.consents.save(consent, voice_file)

    async def remove(self, name: str, viewer: Viewer) -> None:
        """Delete a voice that a viewer owns, and its record.

        Raises:
            InvalidRequestError: the viewer has no voice of this name, or the folder is not
                writable.
        """
        await self.change(self._remove, name, viewer)

    def _remove(self, name: str, viewer: Viewer) -> None:
        with changing(self._clones):
            remove_voice(self._records, self._owned_file(name, viewer))

    def _owned_file(self, name: str, viewer: Viewer) -> str:
        """The name of the file of a voice that a viewer may change, by the viewer's name of it."""
        stored = self._state.clones_of(viewer.key_id).find(name)
        if stored is None or not viewer.owns(self._records.voice(stored)):
            raise InvalidRequestError(
                f"expected the name of a cloned voice of this key, got {name[:64]!r}",
                code=ErrorCode.NOT_FOUND,
            )
        return stored
