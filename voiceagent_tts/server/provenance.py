"""`POST /v1/provenance/detect`, and what marks and describes the audio of a server."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, File, Request, UploadFile

from voiceagent_tts.audio.file_reader import read_audio
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.provenance.detector import FILE_LIMITS, Detection, detect
from voiceagent_tts.provenance.keys import watermark_keys
from voiceagent_tts.provenance.manifest import MANIFEST_TYPES, credentials_of, sign
from voiceagent_tts.provenance.record import Marking, Provenance
from voiceagent_tts.settings.provenance import ProvenanceSettings

MAX_UPLOAD_BYTES = 32 << 20
"""Maximum body of an upload: 10 minutes of WAV at 24 kHz, and room for the form."""
_MAX_DECODERS = 2

router = APIRouter(tags=["provenance"])


class AudioProvenance:
    """Marks and describes the audio of all contexts, and signs files.

    Args:
        settings: the watermark and the certificates.

    Attributes:
        marking: marks the audio of contexts; None where none is marked.

    Raises:
        InvalidRequestError: the keys or the certificates cannot be used.
    """

    def __init__(self, settings: ProvenanceSettings) -> None:
        self._keys = watermark_keys(settings) if settings.watermark else ()
        self.marking = Marking(self._keys[0]) if self._keys else None
        self._credentials = credentials_of(settings)
        self._decoders = asyncio.Semaphore(_MAX_DECODERS)

    async def signed(
        self, file: bytearray, audio_format: str, provenance: Provenance
    ) -> bytes | bytearray:
        """Return a complete file with a C2PA manifest, if the server signs files of this format.

        A file that it does not sign is not copied: it may be large.
        """
        if self._credentials is None or audio_format not in MANIFEST_TYPES:
            return file
        return await asyncio.to_thread(sign, file, audio_format, provenance, self._credentials)

    async def detect(self, file: UploadFile) -> Detection:
        """Look for the watermarks of this server in an audio file.

        Raises:
            InvalidRequestError: the file cannot be read, or this server has no keys.
        """
        if not self._keys:
            raise InvalidRequestError(
                "this server marks no audio and has no keys to look for; start it with --watermark",
                code=ErrorCode.NOT_SUPPORTED,
            )
        async with self._decoders:
            samples = await asyncio.to_thread(read_audio, await file.read(), FILE_LIMITS)
            return await asyncio.to_thread(detect, samples, self._keys)


@router.post("/v1/provenance/detect")
async def detect_watermark(
    request: Request,
    file: Annotated[UploadFile, File(description="WAV, FLAC, MP3 or Ogg; 0.5 s to 10 minutes.")],
) -> dict[str, Any]:
    """Say whether a file has the watermark of this server.

    `score` is in standard deviations of what unmarked audio gives; from `threshold`, audio is
    reported as marked. `marked_s` lists the marked parts in seconds, at a resolution of 4 s.
    """
    provenance: AudioProvenance = request.app.state.server.provenance
    return asdict(await provenance.detect(file))
