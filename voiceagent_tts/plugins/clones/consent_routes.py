"""`/v1/audio/voice_consents`: that a person agreed to a copy of his or her voice, and withdrawal.

A consent is a recording of a fixed phrase, whose speaker is compared with that of each voice made
with it, or a statement of the caller. No words are recognised: a person has to hear the recording.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from pydantic import StringConstraints

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.cloning import Cloning
from voiceagent_tts.plugins.clones.consents import Consent
from voiceagent_tts.plugins.clones.voice_routes import Line, Statement, note_change, viewer_of
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import ServerState

PATH = "/v1/audio/voice_consents"
PHRASES = {
    "de": "Dies ist meine Stimme, und ich bin einverstanden, dass sie künstlich nachgebildet wird.",
    "en": "This is my voice, and I agree that an artificial copy of it is made.",
    "es": "Esta es mi voz, y estoy de acuerdo en que se haga una copia artificial de ella.",
    "fr": "Ceci est ma voix, et j'accepte qu'une copie artificielle en soit faite.",
    "it": "Questa è la mia voce, e acconsento che ne venga fatta una copia artificiale.",
    "ja": "これは私の声です。人工的な複製を作ることに同意します。",
    "ko": "이것은 제 목소리이며, 인공적인 복제본을 만드는 것에 동의합니다.",
    "pt": "Esta é a minha voz, e concordo que seja feita uma cópia artificial dela.",
    "ru": "Это мой голос, и я согласен на создание его искусственной копии.",
    "zh": "这是我的声音，我同意制作它的人工复制品。",
}
"""What a person says in the recording, by language."""

_PersonName = Annotated[Line, StringConstraints(max_length=200)]

router = APIRouter(tags=["voices"])


@router.post(PATH, status_code=201)
async def add_consent(
    request: Request,
    name: Annotated[_PersonName, Form(description="Who agrees.")],
    language: Annotated[str, Form(description="Language of the phrase, such as `en`.")],
    recording: Annotated[
        UploadFile | None,
        File(description="Recording of the phrase: WAV, FLAC, MP3 or Ogg."),
    ] = None,
    attest: Annotated[
        Statement | None,
        Form(
            description="Instead of a recording: how the person agreed, which the caller attests.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Store that a person agreed to a copy of his or her voice.

    The answer has the phrase of the language, which the recording has to be of.
    """
    cloning: Cloning = request.app.state.cloning
    language = _known_language(language)
    if (recording is None) == (attest is None):
        raise InvalidRequestError(
            "expected either a recording or attest", code=ErrorCode.INVALID_PARAM
        )
    key_id = caller_of(request.scope).key_id
    voice_file = None if recording is None else await _voice_of(cloning, recording, key_id)
    consent = Consent(
        name=name,
        language=language,
        method="attest" if recording is None else "recording",
        statement=attest,
        key_id=key_id,
    )
    await cloning.save_consent(consent, voice_file)
    fields = {"consent": consent.id, "method": consent.method, "language": language}
    if attest is not None:
        fields["statement"] = attest
    note_change(request, "consent_added", **fields)
    return _shown(consent)


@router.get(PATH)
async def list_consents(request: Request) -> dict[str, Any]:
    """List the consents that the key has added, oldest first; all for an admin."""
    cloning: Cloning = request.app.state.cloning
    consents = await asyncio.to_thread(cloning.consents.seen_by, viewer_of(request))
    return {"object": "list", "data": [_shown(consent) for consent in consents]}


@router.get(PATH + "/{consent_id}")
async def show_consent(request: Request, consent_id: str) -> dict[str, Any]:
    """Show one consent."""
    cloning: Cloning = request.app.state.cloning
    viewer = viewer_of(request)
    return _shown(await asyncio.to_thread(cloning.consents.find, consent_id, viewer))


@router.delete(PATH + "/{consent_id}")
async def withdraw_consent(request: Request, consent_id: str) -> dict[str, Any]:
    """Withdraw a consent: delete it and every voice made with it, also on other servers."""
    state: ServerState = request.app.state.server
    cloning: Cloning = request.app.state.cloning
    names = await cloning.change(cloning.consents.withdraw, consent_id, viewer_of(request))
    for forget in state.on_withdrawal:
        await forget()
    note_change(request, "consent_withdrawn", consent=consent_id, voices=",".join(names))
    return {"id": consent_id, "deleted": True, "voices": names}


async def _voice_of(cloning: Cloning, recording: UploadFile, key_id: str | None) -> bytes:
    with cloning.places.take(key_id):
        samples = await cloning.read_upload(recording)
        return (await cloning.processes.clone(cloning.model, samples, "")).content


def _known_language(language: str) -> str:
    code = language.casefold().partition("-")[0]
    if code not in PHRASES:
        raise InvalidRequestError(
            f"language: expected one of {', '.join(PHRASES)}, got {language[:16]!r}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
    return code


def _shown(consent: Consent) -> dict[str, Any]:
    fields = consent.model_dump(exclude={"key_id", "statement"})
    return {"object": "audio.voice_consent", **fields, "phrase": PHRASES[consent.language]}
