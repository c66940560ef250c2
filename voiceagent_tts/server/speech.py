"""`POST /v1/audio/speech`: speak a whole text, streaming the audio.

The fields are OpenAI's, also under SimpliSmart's names. A request is one context without pacing:
audio is sent as fast as the client reads. A streamed body is taken to be played on arrival, so it
has the deadlines of a listener; a request can give them up with `priority`. An error before the
first audio is an HTTP error; after it, the body ends early. A client that disconnects cancels its
context.
"""

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from voiceagent_tts.audio.containers import CONTENT_TYPES, ContainerFormat
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.server.encoding import stream_encoder
from voiceagent_tts.server.provenance import provenance_headers
from voiceagent_tts.server.speaking import listener_of, start_speaking
from voiceagent_tts.server.speech_events import as_json_lines, as_server_sent_events
from voiceagent_tts.server.speech_file import collect_file
from voiceagent_tts.server.speech_request import SpeechRequest
from voiceagent_tts.server.speech_response import SpeechResponse
from voiceagent_tts.server.state import ServerState

_L16 = "audio/l16"

router = APIRouter(tags=["speech"])


@router.post("/v1/audio/speech", response_class=SpeechResponse)
async def speak(request: Request, body: SpeechRequest) -> Response:
    """Speak `input` and stream the audio in `response_format`."""
    state: ServerState = request.app.state.server
    listener = listener_of(request)
    options = body.options(state.served(listener.origin.caller.key_id))
    speech = await start_speaking(state, listener, body.input, options)
    container_format, content_type = _answer_format(body, request.headers.get("accept", ""))
    headers = pcm_headers(SAMPLE_RATE_HZ) if container_format == "pcm" else {}
    if not body.is_streamed:
        file = await collect_file(state, listener, speech, container_format)
        headers |= provenance_headers(file.provenance) | {"Content-Length": str(len(file.data))}
        return StreamingResponse(file.slices(), media_type=content_type, headers=headers)
    headers |= provenance_headers(speech.provenance(is_complete=False))
    encoder = stream_encoder(container_format)
    match body.stream_format:
        case "sse":
            parts, content_type = as_server_sent_events(speech, encoder), "text/event-stream"
        case "ndjson":
            parts, content_type = as_json_lines(speech, encoder), "application/x-ndjson"
        case "audio":
            parts = encoder.encoded(speech.pcm())
    return SpeechResponse(parts, media_type=content_type, headers=headers)


def pcm_headers(sample_rate_hz: int) -> dict[str, str]:
    """What a client must know to play samples that have no header of their own."""
    return {"X-Sample-Rate": str(sample_rate_hz), "X-Channels": "1"}


def _answer_format(body: SpeechRequest, accept: str) -> tuple[ContainerFormat, str]:
    """The format of the audio, and its Content-Type."""
    if body.response_format is None and _L16 in accept.lower():
        # Little-endian, unlike RFC 2586: SimpliSmart's clients expect it.
        return "pcm", f"audio/L16;rate={SAMPLE_RATE_HZ};channels=1"
    container_format = body.response_format or "mp3"
    return container_format, CONTENT_TYPES[container_format]
