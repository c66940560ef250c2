"""`POST /tts/bytes`: speaks a whole text as Cartesia's API does."""

from fastapi import APIRouter, Request

from voiceagent_tts.plugins.dialects.cartesia import BytesRequest
from voiceagent_tts.plugins.speech.encoding import sample_encoder
from voiceagent_tts.plugins.speech.server import pcm_headers
from voiceagent_tts.plugins.speech.speaking import SpeechResponse, provenance_headers, speak_for
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.synthesizer.options import ContextOptions

router = APIRouter(tags=["speech"])


@router.post("/tts/bytes", response_class=SpeechResponse)
async def speak_as_cartesia(request: Request, body: BytesRequest) -> SpeechResponse:
    """Speak `transcript` and stream the samples, as Cartesia's API does."""
    options = ContextOptions(
        voice=body.voice.name,
        language=body.language,
        speech=SpeechOptions(speed=body.speed),
        max_lead_s=0,
        text_feeding="segment",
        wants_words=False,
        has_markup=True,
    )
    speech = await speak_for(request, body.transcript, options)
    encoder = sample_encoder(body.output_format.encoding, body.output_format.sample_rate)
    headers = pcm_headers(body.output_format.sample_rate)
    headers |= provenance_headers(speech.provenance(is_complete=False))
    audio = encoder.encoded(speech.pcm())
    return SpeechResponse(audio, media_type="audio/pcm", headers=headers)
