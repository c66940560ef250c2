"""Clones over HTTP: add one by a recording, a description or a voice file; download and remove it.

The engine is not touched: a stored voice can be used by the next context. Recordings of users are
decoded in a process with limited memory and time (`audio.file_reader`).
"""

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import structlog
from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from voiceagent_tts.audio.file_reader import REFERENCE_LIMITS, read_audio
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.cloner_messages import VoiceFile
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.cloner import CloneModel
from voiceagent_tts.server.speaking import speak_for
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.voices import CLONE_SUFFIX, clone_name

MAX_UPLOAD_BYTES = 16 << 20
"""Maximum body of an upload: 60 s of stereo WAV at 48 kHz, and room for the other fields."""

router = APIRouter(tags=["voices"])
_log = structlog.get_logger(__name__)


class DesignRequest(BaseModel):
    """The body: what the voice sounds like, and the text of its reference recording."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = Field(description="Name of the new voice.")
    instruct: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="Description of the voice: age, timbre, speaking style."
    )
    text: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="Text of the reference recording: a sentence or two."
    )
    language: str | None = Field(None, description="Language of `text`; detected by default.")
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(
        0, description="Another seed gives another voice."
    )
    replace: bool = Field(False, description="Replace the clone of this name, if any.")


@router.post("/v1/audio/voices", status_code=201)
async def add_voice(
    request: Request,
    name: Annotated[str, Form(description="Name of the new voice.")],
    consent: Annotated[
        str,
        Form(
            min_length=1,
            max_length=2000,
            description="Who agreed to this clone, in one line; the server logs it.",
        ),
    ],
    audio_sample: Annotated[
        UploadFile | None,
        File(description="Recording of one voice, best 3 to 30 s: WAV, FLAC, MP3 or Ogg."),
    ] = None,
    voice_file: Annotated[
        UploadFile | None, File(description="A voice file instead, as downloaded from a server.")
    ] = None,
    ref_text: Annotated[
        str,
        Form(description="Transcript of the recording; with it, the style is cloned too."),
    ] = "",
    replace: Annotated[bool, Form(description="Replace the clone of this name, if any.")] = False,
) -> dict[str, Any]:
    """Clone a voice from a recording, or store a voice file.

    The answer names the voice, and lists `warnings` about a recording that may spoil it.
    """
    state: ServerState = request.app.state.server
    model = _clone_model(state)
    name = _free_name(state, name, replace=replace)
    if audio_sample is not None and voice_file is None:
        data = await audio_sample.read()
        samples = await asyncio.to_thread(read_audio, data)
        voice = await state.cloner.clone(model, samples, ref_text)
    elif voice_file is not None and audio_sample is None:
        data = await voice_file.read()
        voice = await state.cloner.check(model, data)
    else:
        raise InvalidRequestError(
            "expected either audio_sample or voice_file", code=ErrorCode.INVALID_PARAM
        )
    saved = await _save(state, name, voice)
    how = "recording" if audio_sample is not None else "voice_file"
    _note(request, "voice_added", voice=name, how=how, consent=consent)
    return saved


@router.post("/v1/audio/voices/design", status_code=201)
async def design_voice(request: Request, body: DesignRequest) -> dict[str, Any]:
    """Design a voice from a description, and store a clone of it that stays constant.

    The VoiceDesign model of this server speaks `text` once; the Base model clones that recording.
    """
    state: ServerState = request.app.state.server
    model = _clone_model(state)
    designer = _designed_voice(state)
    name = _free_name(state, body.name, replace=body.replace)
    options = ContextOptions(
        voice=designer,
        language=body.language,
        speech=SpeechOptions(instruct=body.instruct, seed=body.seed, is_batch=True),
        max_lead_s=0,
        wants_words=False,
        cache="off",
    )
    samples = await _record(request, body.text, options)
    voice = await state.cloner.clone(model, samples, body.text)
    saved = await _save(state, name, voice)
    _note(request, "voice_added", voice=name, how="design")
    return saved


@router.get("/v1/audio/voices/{name}", response_class=Response)
async def download_voice(request: Request, name: str) -> Response:
    """Download a clone as a voice file, for `POST /v1/audio/voices` on another server."""
    state: ServerState = request.app.state.server
    content = await asyncio.to_thread(state.clones.read, _stored_name(state, name))
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="voice{CLONE_SUFFIX}"'},
    )


@router.delete("/v1/audio/voices/{name}", status_code=204)
async def remove_voice(request: Request, name: str) -> None:
    """Remove a clone; contexts that already use it continue."""
    state: ServerState = request.app.state.server
    name = _stored_name(state, name)
    await asyncio.to_thread(state.clones.remove, name)
    _note(request, "voice_removed", voice=name)


def _note(request: Request, event: str, **fields: str) -> None:
    """Log a change of the voices, also in the audit log."""
    state: ServerState = request.app.state.server
    caller = caller_of(request.scope)
    _log.info(event, key_id=caller.key_id, **fields)
    state.audit(event, key_id=caller.key_id, ip=caller.ip, **fields)


async def _save(state: ServerState, name: str, voice: VoiceFile) -> dict[str, Any]:
    await asyncio.to_thread(state.clones.save, name, voice.content)
    return {"id": name, "name": name, "warnings": list(voice.warnings)}


async def _record(request: Request, text: str, options: ContextOptions) -> npt.NDArray[np.float32]:
    """Speak a text into a reference recording; [S] float32 in [-1, 1], 24 kHz."""
    pcm = bytearray()
    speech = await speak_for(request, text, options)
    async with aclosing(speech.unmarked_pcm()) as pieces:
        async for piece in pieces:
            pcm += piece
            if len(pcm) > REFERENCE_LIMITS.max_s * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE:
                raise InvalidRequestError(
                    f"text: expected one that is spoken within {REFERENCE_LIMITS.max_s:g} s",
                    code=ErrorCode.TEXT_TOO_LONG,
                )
    return pcm_to_float(bytes(pcm))


def _clone_model(state: ServerState) -> CloneModel:
    """What speaks the clones of this server."""
    if (model := state.clone_model) is not None:
        return model
    raise InvalidRequestError(
        "this server cannot clone voices: expected a Qwen3-TTS Base model among its models, or "
        f"Pocket TTS with its weights for cloning, got {_engines(state)}; start it with --engine "
        "qwen3 --model Qwen/Qwen3-TTS-12Hz-0.6B-Base",
        code=ErrorCode.NOT_SUPPORTED,
    )


def _designed_voice(state: ServerState) -> str:
    if (voice := state.designed_voice) is not None:
        return voice
    raise InvalidRequestError(
        "this server cannot design voices: expected a Qwen3-TTS VoiceDesign model among its "
        f"models, got {_engines(state)}; add one with --model",
        code=ErrorCode.NOT_SUPPORTED,
    )


def _engines(state: ServerState) -> str:
    supervisors = state.synthesizer.supervisors.values()
    return ", ".join(sorted({each.capabilities.model for each in supervisors}))


def _free_name(state: ServerState, name: str, *, replace: bool) -> str:
    normal = clone_name(name)
    if normal in state.clones:
        if replace:
            return normal
        taken = f"a voice {normal!r} exists; choose another name, or set `replace`"
    elif normal in (each.details.name.casefold() for each in state.synthesizer.voices.listed()):
        taken = f"{normal!r} is a built-in voice; choose another name"
    else:
        return normal
    raise InvalidRequestError(taken, code=ErrorCode.INVALID_VOICE)


def _stored_name(state: ServerState, name: str) -> str:
    if name not in state.clones:
        raise InvalidRequestError(
            f"expected the name of a cloned voice, got {name[:64]!r}", code=ErrorCode.NOT_FOUND
        )
    return clone_name(name)
