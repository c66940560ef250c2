"""Clones over HTTP: add one by a recording, a description or a voice file; download and remove it.

The engine is not touched: a stored voice can be used by the next context. Recordings of users are
decoded in a process with limited memory and time (`recordings.file_reader`).
"""

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.clones import CLONE_SUFFIX, clone_name
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.cloning import Cloning
from voiceagent_tts.plugins.clones.messages import VoiceFile
from voiceagent_tts.plugins.clones.voice_records import Tag, Viewer, VoiceRecord, is_one_line
from voiceagent_tts.plugins.recordings.file_reader import REFERENCE_LIMITS
from voiceagent_tts.plugins.speech.speaking import speak_for
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.callers import audit
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.options import ContextOptions

PATH = "/v1/audio/voices"


def _one_line(text: str) -> str:
    if not is_one_line(text):
        raise ValueError("expected one line without control characters")
    return text


Line = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_one_line)
]
"""A text that is shown in lists and logs. White space states nothing."""
Statement = Annotated[Line, StringConstraints(max_length=2000)]
"""Who agreed to a clone, in the words of the caller."""

router = APIRouter(tags=["voices"])


class DesignRequest(BaseModel):
    """The body: what the voice sounds like, and the text of its reference recording."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = Field(max_length=256, description="Name of the new voice.")
    instruct: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="Description of the voice: age, timbre, speaking style."
    )
    text: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="Text of the reference recording: a sentence or two."
    )
    language: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="Language of `text`; detected by default."
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(
        0, description="Another seed gives another voice."
    )
    replace: bool = Field(False, description="Replace the clone of this name, if any.")
    tag: Tag = Field("production", description="What the voice is for: `testing`, `production`.")


@router.post(PATH, status_code=201)
async def add_voice(
    request: Request,
    name: Annotated[str, Form(description="Name of the new voice.")],
    consent: Annotated[
        Statement | None,
        Form(description="Who agreed to this clone, in one line; the server logs it."),
    ] = None,
    consent_id: Annotated[
        str | None, Form(description="A consent of `POST /v1/audio/voice_consents` instead.")
    ] = None,
    tag: Annotated[
        Tag, Form(description="What the voice is for: `testing` or `production`.")
    ] = "production",
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
    cloning: Cloning = request.app.state.cloning
    model = cloning.model
    viewer = viewer_of(request)
    record = VoiceRecord(
        name=clone_name(name),
        consent_id=consent_id,
        consent=consent,
        tag=tag,
        key_id=viewer.key_id,
        is_shared=viewer.is_admin,
    )
    cloning.check_name(record, replace=replace)
    agreed = await asyncio.to_thread(cloning.check_consent, viewer, consent, consent_id)
    await asyncio.to_thread(cloning.check_quota, record)
    with cloning.places.take(viewer.key_id):
        if audio_sample is not None and voice_file is None:
            samples = await cloning.read_upload(audio_sample)
            voice = await cloning.processes.clone(model, samples, ref_text)
        elif voice_file is not None and audio_sample is None:
            voice = await cloning.processes.check(model, await voice_file.read())
        else:
            raise InvalidRequestError(
                "expected either audio_sample or voice_file", code=ErrorCode.INVALID_PARAM
            )
    await asyncio.to_thread(cloning.check_speaker, agreed, voice)
    saved = await _save(cloning, record, voice, replace=replace)
    how = "recording" if audio_sample is not None else "voice_file"
    said = agreed.id if agreed is not None else consent or ""
    note_change(request, "voice_added", voice=record.name, id=record.id, how=how, consent=said)
    return saved


@router.post(PATH + "/design", status_code=201)
async def design_voice(request: Request, body: DesignRequest) -> dict[str, Any]:
    """Design a voice from a description, and store a clone of it that stays constant.

    The VoiceDesign model of this server speaks `text` once; the Base model clones that recording.
    """
    cloning: Cloning = request.app.state.cloning
    designer = cloning.designer
    model = cloning.model
    viewer = viewer_of(request)
    record = VoiceRecord(
        name=clone_name(body.name),
        tag=body.tag,
        key_id=viewer.key_id,
        is_shared=viewer.is_admin,
    )
    cloning.check_name(record, replace=body.replace)
    await asyncio.to_thread(cloning.check_quota, record)
    options = ContextOptions(
        voice=designer,
        language=body.language,
        speech=SpeechOptions(instruct=body.instruct, seed=body.seed, is_batch=True),
        max_lead_s=0,
        wants_words=False,
        cache="off",
    )
    with cloning.places.take(viewer.key_id):
        samples = await _record(request, body.text, options)
        voice = await cloning.processes.clone(model, samples, body.text, is_designed=True)
    saved = await _save(cloning, record, voice, replace=body.replace)
    note_change(request, "voice_added", voice=record.name, id=record.id, how="design")
    return saved


@router.get(PATH + "/{name}", response_class=Response)
async def download_voice(request: Request, name: str) -> Response:
    """Download a clone as a voice file, for `POST /v1/audio/voices` on another server."""
    cloning: Cloning = request.app.state.cloning
    content = await asyncio.to_thread(cloning.read, name, viewer_of(request))
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="voice{CLONE_SUFFIX}"'},
    )


@router.delete(PATH + "/{name}", status_code=204)
async def remove_voice(request: Request, name: str) -> None:
    """Remove a clone; contexts that already use it continue."""
    cloning: Cloning = request.app.state.cloning
    await cloning.remove(name, viewer_of(request))
    note_change(request, "voice_removed", voice=name)


def viewer_of(request: Request) -> Viewer:
    """Whose voices and consents a request is about."""
    state: ServerState = request.app.state.server
    key_id = caller_of(request.scope).key_id
    return Viewer(key_id, state.is_admin(key_id))


def note_change(request: Request, event: str, **fields: str) -> None:
    """Record a change of the voices."""
    caller = caller_of(request.scope)
    audit(event, key_id=caller.key_id, ip=caller.ip, **fields)


async def _save(
    cloning: Cloning, record: VoiceRecord, voice: VoiceFile, *, replace: bool
) -> dict[str, Any]:
    await cloning.save(record, voice, replace=replace)
    warnings = list(voice.warnings)
    return {"id": record.name, "name": record.name, "voice_id": record.id, "warnings": warnings}


async def _record(request: Request, text: str, options: ContextOptions) -> npt.NDArray[np.float32]:
    """Speak a text into a reference recording; [S] float32 in [-1, 1], 24 kHz."""
    pcm = bytearray()
    speech = await speak_for(request, text, options)
    async with aclosing(speech.unfiltered_pcm()) as pieces:
        async for piece in pieces:
            pcm += piece
            if len(pcm) > REFERENCE_LIMITS.max_s * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE:
                raise InvalidRequestError(
                    f"text: expected one that is spoken within {REFERENCE_LIMITS.max_s:g} s",
                    code=ErrorCode.TEXT_TOO_LONG,
                )
    return pcm_to_float(bytes(pcm))
