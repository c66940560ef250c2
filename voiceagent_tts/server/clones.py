"""Clones over HTTP: add one by a recording, a description or a voice file; download and remove it.

The engine is not touched: a stored voice can be used by the next context. Recordings of users are
decoded in a process with limited memory and time (`audio.file_reader`).
"""

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import structlog
from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.access.audit import audit
from voiceagent_tts.audio.file_reader import REFERENCE_LIMITS, read_audio
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.cloner_messages import VoiceFile
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.cloner_processes import CloneModel
from voiceagent_tts.server.speaking import speak_for
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.server.voice_records import Consent, Tag, Viewer, VoiceRecord
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.voices import CLONE_SUFFIX, clone_name

MAX_UPLOAD_BYTES = 16 << 20
LEAST_SIMILARITY = 0.5
"""Least similarity (cosine) of the speakers of a consent's recording and of a voice made with it.
It was never tried on published weights."""
"""Maximum body of an upload: 60 s of stereo WAV at 48 kHz, and room for the other fields."""

Statement = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
"""Who agreed to a clone, in the words of the caller. White space states nothing."""

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
    tag: Tag = Field("production", description="What the voice is for: `testing`, `production`.")


@router.post("/v1/audio/voices", status_code=201)
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
    state: ServerState = request.app.state.server
    model = clone_model(state)
    viewer = viewer_of(request)
    record = VoiceRecord(
        name=clone_name(name),
        consent_id=consent_id,
        consent=consent,
        tag=tag,
        key_id=viewer.key_id,
        is_shared=viewer.is_admin,
    )
    _check_name(state, record, replace=replace)
    agreed = await asyncio.to_thread(_check_consent, state, viewer, consent, consent_id)
    await asyncio.to_thread(_check_quota, state, record)
    with state.cloners.place(viewer.key_id):
        if audio_sample is not None and voice_file is None:
            samples = await read_upload(state, audio_sample)
            voice = await state.cloners.clone(model, samples, ref_text)
        elif voice_file is not None and audio_sample is None:
            voice = await state.cloners.check(model, await voice_file.read())
        else:
            raise InvalidRequestError(
                "expected either audio_sample or voice_file", code=ErrorCode.INVALID_PARAM
            )
    await asyncio.to_thread(_check_speaker, state, agreed, voice)
    saved = await _save(state, record, voice, replace=replace)
    how = "recording" if audio_sample is not None else "voice_file"
    said = agreed.id if agreed is not None else consent or ""
    note_change(request, "voice_added", voice=record.name, id=record.id, how=how, consent=said)
    return saved


@router.post("/v1/audio/voices/design", status_code=201)
async def design_voice(request: Request, body: DesignRequest) -> dict[str, Any]:
    """Design a voice from a description, and store a clone of it that stays constant.

    The VoiceDesign model of this server speaks `text` once; the Base model clones that recording.
    """
    state: ServerState = request.app.state.server
    model = clone_model(state)
    designer = _designed_voice(state)
    viewer = viewer_of(request)
    record = VoiceRecord(
        name=clone_name(body.name),
        tag=body.tag,
        key_id=viewer.key_id,
        is_shared=viewer.is_admin,
    )
    _check_name(state, record, replace=body.replace)
    await asyncio.to_thread(_check_quota, state, record)
    options = ContextOptions(
        voice=designer,
        language=body.language,
        speech=SpeechOptions(instruct=body.instruct, seed=body.seed, is_batch=True),
        max_lead_s=0,
        wants_words=False,
        cache="off",
    )
    with state.cloners.place(viewer.key_id):
        samples = await _record(request, body.text, options)
        voice = await state.cloners.clone(model, samples, body.text, is_designed=True)
    saved = await _save(state, record, voice, replace=body.replace)
    note_change(request, "voice_added", voice=record.name, id=record.id, how="design")
    return saved


@router.get("/v1/audio/voices/{name}", response_class=Response)
async def download_voice(request: Request, name: str) -> Response:
    """Download a clone as a voice file, for `POST /v1/audio/voices` on another server."""
    content = await asyncio.to_thread(_read_owned, request, name)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="voice{CLONE_SUFFIX}"'},
    )


@router.delete("/v1/audio/voices/{name}", status_code=204)
async def remove_voice(request: Request, name: str) -> None:
    """Remove a clone; contexts that already use it continue."""
    state: ServerState = request.app.state.server
    await state.change_voices(state.voice_records.remove_voice, name, viewer_of(request))
    note_change(request, "voice_removed", voice=name)


def viewer_of(request: Request) -> Viewer:
    """Whose voices and consents a request is about."""
    state: ServerState = request.app.state.server
    return state.viewer(caller_of(request.scope).key_id)


def note_change(request: Request, event: str, **fields: str) -> None:
    """Record a change of the voices."""
    caller = caller_of(request.scope)
    audit(event, key_id=caller.key_id, ip=caller.ip, **fields)


async def _save(
    state: ServerState, record: VoiceRecord, voice: VoiceFile, *, replace: bool
) -> dict[str, Any]:
    await state.change_voices(partial(_store, replace=replace), state, record, voice)
    warnings = list(voice.warnings)
    return {"id": record.name, "name": record.name, "voice_id": record.id, "warnings": warnings}


def _store(state: ServerState, record: VoiceRecord, voice: VoiceFile, *, replace: bool) -> None:
    """Store a voice, unless what allowed it has changed while it was cloned, which takes seconds.

    Raises:
        InvalidRequestError: its consent was withdrawn, its name was taken, or its key's quota was
            used up meanwhile.
    """
    with state.clones.changing():
        if record.consent_id is not None:
            state.voice_records.consent(record.consent_id)
        _check_taken(state, record, replace=replace)
        _check_quota(state, record)
        state.voice_records.add_voice(record, voice.content)


def _check_consent(
    state: ServerState, viewer: Viewer, consent: str | None, consent_id: str | None
) -> Consent | None:
    """The consent of an id, if the settings are content with what the caller gives."""
    if consent_id is None and consent is None:
        raise InvalidRequestError("expected consent or consent_id", code=ErrorCode.INVALID_PARAM)
    agreed = None if consent_id is None else state.voice_records.consent(consent_id, viewer)
    if state.settings.consent_mode == "recording" and (
        agreed is None or agreed.method != "recording"
    ):
        raise InvalidRequestError(
            "consent_id: expected a consent with a recording; this server clones no voice without "
            "one, see POST /v1/audio/voice_consents",
            code=ErrorCode.CONSENT_REQUIRED,
        )
    return agreed


def _check_speaker(state: ServerState, consent: Consent | None, voice: VoiceFile) -> None:
    """Refuse a voice that is not that of its recorded consent, where both can be compared."""
    if consent is None or consent.method != "recording":
        return
    similarity = state.voice_records.similarity(consent, voice.content)
    if similarity is not None and similarity < LEAST_SIMILARITY:
        raise InvalidRequestError(
            f"consent_id: expected the speaker of the consent, got another one (similarity "
            f"{similarity:.2f} of at least {LEAST_SIMILARITY:g}); record both "
            "with one person and one microphone",
            code=ErrorCode.CONSENT_REQUIRED,
        )


def _check_quota(state: ServerState, record: VoiceRecord) -> None:
    """Refuse one voice more than a key may have."""
    most = state.settings.voices_per_key
    if most is None:
        return
    others = state.voice_records.owned_by(record.key_id) - {record.stored}
    if len(others) >= most:
        raise InvalidRequestError(
            f"expected at most {most} voices of one key, got one more; remove one first",
            code=ErrorCode.VOICE_QUOTA,
        )


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


async def read_upload(state: ServerState, file: UploadFile) -> npt.NDArray[np.float32]:
    """Decode a recording; as `read_audio`, a few at the same time, and only these are in memory."""
    async with state.decoders:
        return await asyncio.to_thread(read_audio, await file.read())


def clone_model(state: ServerState) -> CloneModel:
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


def _read_owned(request: Request, name: str) -> bytes:
    state: ServerState = request.app.state.server
    return state.clones.read(state.voice_records.owned_file(name, viewer_of(request)))


def _check_name(state: ServerState, record: VoiceRecord, *, replace: bool) -> None:
    """Refuse the name of a new clone if it is taken, or that of a built-in voice."""
    if _check_taken(state, record, replace=replace):
        return
    if state.synthesizer.voices.is_built_in(record.name):
        raise InvalidRequestError(
            f"{record.name!r} is a built-in voice; choose another name",
            code=ErrorCode.INVALID_VOICE,
        )


def _check_taken(state: ServerState, record: VoiceRecord, *, replace: bool) -> bool:
    """Whether there is a clone in the place of a new one; refuses it, unless it is to be replaced.

    Another key has other places: nothing tells that it has a clone of this name.
    """
    is_taken = record.stored in state.clones
    if is_taken and not replace:
        raise InvalidRequestError(
            f"a voice {record.name!r} exists; choose another name, or set `replace`",
            code=ErrorCode.INVALID_VOICE,
        )
    return is_taken
