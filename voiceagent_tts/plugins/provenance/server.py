"""What marks the audio and signs the files of a server; `POST /v1/provenance/detect`."""

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, File, Request, UploadFile

from voiceagent_tts.errors import ConnectionLostError, ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.provenance.detector import FILE_LIMITS, Detection, detect
from voiceagent_tts.plugins.provenance.keys import WatermarkKey, watermark_keys
from voiceagent_tts.plugins.provenance.manifest import Credentials, credentials_of, sign
from voiceagent_tts.plugins.provenance.marking import Marking
from voiceagent_tts.plugins.recordings.file_reader import read_audio
from voiceagent_tts.plugins.recordings.places import Places
from voiceagent_tts.plugins.speech.speaking import Listener, listener_of
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.server.state import AudioFile, ServerHooks

_PATH = "/v1/provenance/detect"
_MAX_UPLOAD_BYTES = 32 << 20
"""Maximum body of an upload: 10 minutes of WAV at 24 kHz, and room for the form."""
_MAX_DECODERS = 2

router = APIRouter(tags=["provenance"])


def add_to_server(hooks: ServerHooks) -> None:
    """Mark all audio, sign whole files, and add the route that finds the mark.

    Raises:
        InvalidRequestError: the keys or the certificates cannot be used.
    """
    settings = hooks.state.settings
    keys = watermark_keys(settings) if settings.watermark else ()
    if keys:
        hooks.state.audio_filter = Marking(keys[0])
    if (credentials := credentials_of(settings)) is not None:
        hooks.state.file_filter = partial(_signed, credentials)
    hooks.app.state.watermarks = _Watermarks(keys)
    hooks.app.include_router(router)
    hooks.upload_bytes[_PATH] = _MAX_UPLOAD_BYTES


async def _signed(
    credentials: Credentials, file: AudioFile, audio_format: str, provenance: ProvenanceFields
) -> AudioFile:
    return await asyncio.to_thread(sign, credentials, file, audio_format, provenance)


class _Watermarks:
    """Finds the watermarks of this server."""

    def __init__(self, keys: tuple[WatermarkKey, ...]) -> None:
        self._keys = keys
        self._places = Places("files are being examined")
        self._decoders = asyncio.Semaphore(_MAX_DECODERS)

    async def find(self, file: UploadFile, listener: Listener) -> Detection:
        """Look for them in an audio file; begins no part of the work for a client that has gone.

        Raises:
            InvalidRequestError: the file cannot be read, or this server has no keys.
            OverloadedError: all places are taken, or those of the key.
            ConnectionLostError: the client has gone.
        """
        if not self._keys:
            raise InvalidRequestError(
                "this server marks no audio and has no keys to look for; start it with --watermark",
                code=ErrorCode.NOT_SUPPORTED,
            )
        with self._places.take(listener.origin.caller.key_id):
            async with self._decoders:
                await _check_here(listener)
                samples = await asyncio.to_thread(read_audio, await file.read(), FILE_LIMITS)
                await _check_here(listener)
                return await asyncio.to_thread(detect, samples, self._keys)


async def _check_here(listener: Listener) -> None:
    if await listener.is_gone():
        raise ConnectionLostError("the client disconnected before its file was examined")


@router.post(_PATH)
async def detect_watermark(
    request: Request,
    file: Annotated[UploadFile, File(description="WAV, FLAC, MP3 or Ogg; 0.5 s to 10 minutes.")],
) -> dict[str, Any]:
    """Say whether a file has the watermark of this server.

    `score` is in standard deviations of what unmarked audio gives; from `threshold`, audio is
    reported as marked. `marked_s` lists the marked parts in seconds, at a resolution of 4 s.
    """
    watermarks: _Watermarks = request.app.state.watermarks
    return asdict(await watermarks.find(file, listener_of(request)))
