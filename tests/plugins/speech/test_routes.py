"""`POST /v1/audio/speech` as OpenAI's own SDK and other clients use it."""

import base64
import io
import json
import threading
import wave
from typing import Any

import av
import httpx
import numpy as np
import openai
import pytest
import pytest_asyncio
import soundfile
from structlog.testing import capture_logs

from testbed.servers import StartServer, metric_value, worker_of
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.speech.containers import ContainerEncoder
from voiceagent_tts.plugins.speech.models import MODELS
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest
from voiceagent_tts.server.serve import RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCE = "The quick brown fox jumps over the lazy dog. "
CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse",
    "marin", "cedar",
)  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module")
async def sdk(shared_server: RunningServer):
    base_url = f"{shared_server.url}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


def decode(container_format: str, data: bytes) -> tuple[np.ndarray, int]:
    """Decode audio with FFmpeg: [S] int16 and the sample rate."""
    if container_format == "pcm":
        return np.frombuffer(data, "<i2"), SAMPLE_RATE_HZ
    to_pcm16 = av.AudioResampler("s16", "mono")
    with av.open(io.BytesIO(data)) as container:
        frames = [pcm for f in container.decode(audio=0) for pcm in to_pcm16.resample(f)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]), frames[0].sample_rate


@pytest.mark.parametrize("container_format", CONTENT_TYPES)
async def test_pain_06_every_format_holds_all_of_the_speech(
    shared_server: RunningServer, http: httpx.AsyncClient, container_format: str
) -> None:
    before = metric_value(shared_server, "tts_audio_seconds_total")
    body = {"input": SENTENCE, "response_format": container_format}
    response = await http.post("/v1/audio/speech", json=body)
    made_s = metric_value(shared_server, "tts_audio_seconds_total") - before
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(CONTENT_TYPES[container_format])
    samples, rate_hz = decode(container_format, response.content)
    # mp3 and aac add their delay and fill up their last frame: 0.1 s at most.
    assert made_s - 0.001 <= len(samples) / rate_hz <= made_s + 0.1
    assert np.sqrt(np.mean(samples.astype(np.float64) ** 2)) > 500


@pytest.mark.parametrize("text", [" ", "\U0001f44d", "![](http://x.y/z.png)"])
@pytest.mark.parametrize("container", CONTENT_TYPES)
async def test_a_text_without_speech_is_a_file_of_silence(
    http: httpx.AsyncClient, container: str, text: str
) -> None:
    """A decoder gets samples from it: clients take an answer without any for a failure."""
    body = {"input": text, "response_format": container}
    samples, rate_hz = decode(container, (await http.post("/v1/audio/speech", json=body)).content)
    assert len(samples) >= 0.05 * rate_hz and abs(samples).max() < 100


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_a_client_that_goes_cancels(
    shared_server: RunningServer, http: httpx.AsyncClient, stream_format: str
) -> None:
    """While the engine speaks; a disconnect frees the row and counts as a cancelled context."""
    before = metric_value(shared_server, "tts_contexts_total", reason="cancelled")
    body = {"input": SENTENCE * 400, "response_format": "pcm", "stream_format": stream_format}
    synthesizer = shared_server.state.synthesizer
    async with http.stream("POST", "/v1/audio/speech", json=body) as response:
        await anext(response.aiter_bytes(100))
        assert synthesizer.contexts_active == 1
    worker = worker_of(synthesizer)
    await until(lambda: not synthesizer.contexts_active, "no context is open")
    await until(lambda: not worker.rows_used, "no row is used")
    assert metric_value(shared_server, "tts_contexts_total", reason="cancelled") == before + 1


# OpenAI's SDK


@pytest.mark.parametrize("voice", OPENAI_VOICES)
async def test_the_names_of_openai_are_voices(sdk: openai.AsyncOpenAI, voice: str) -> None:
    response = await sdk.audio.speech.create(
        model="tts-1-hd", voice=voice, input="Hello.", response_format="pcm"
    )
    assert any(response.content)


@pytest.mark.parametrize("model", MODELS)
async def test_a_language_may_follow_the_model(sdk: openai.AsyncOpenAI, model: str) -> None:
    """`tts-1-de` speaks German: the same digits have another duration."""
    lengths = []
    for name in (model, f"{model}-de"):
        response = await sdk.audio.speech.create(
            model=name, voice="alloy", input="999 999", response_format="pcm"
        )
        lengths.append(len(response.content))
    assert abs(lengths[0] - lengths[1]) > 10_000


async def test_an_unknown_voice_is_told_the_known(sdk: openai.AsyncOpenAI) -> None:
    """The SDK raises its own error, whose message names those that are most alike."""
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.audio.speech.create(model="tts-1", voice="aloy", input="Hello.")
    assert refused.value.code == "invalid_voice"
    assert "alloy" in refused.value.message


async def test_lexicon_and_markup_are_taken(sdk: openai.AsyncOpenAI) -> None:
    """As fields beside OpenAI's; a mistake in the lexicon is the caller's, and is not shown."""

    async def seconds(text: str, **fields: Any) -> float:
        response = await sdk.audio.speech.create(
            model="tts-1", voice="alloy", input=text, response_format="pcm", extra_body=fields
        )
        return len(response.content) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    written = "four hundred and ninety nine thousand"
    said = await seconds("abc", lexicon={"abc": written})
    assert said == pytest.approx(await seconds(written), rel=0.03)
    tagged = 'One. <break time="2s"/> Two.'
    paused = await seconds(tagged, markup=True) - await seconds(tagged)
    assert paused == pytest.approx(2.0, abs=0.5)
    with pytest.raises(openai.APIStatusError) as refused:
        await seconds("abc", lexicon={"": "x"})
    assert refused.value.status_code in (400, 422)
    assert "entry 1" in refused.value.message


async def test_speed_and_instructions_are_taken(sdk: openai.AsyncOpenAI) -> None:
    """Half the speed takes longer; voices that cannot follow instructions accept them too."""
    lengths = []
    for speed in (0.25, 0.5, 2.0, 4.0):
        response = await sdk.audio.speech.create(
            model="tts-1",
            voice="alloy",
            input=SENTENCE,
            speed=speed,
            instructions="warm and calm",
            response_format="pcm",
        )
        lengths.append(len(response.content))
    assert lengths[1] > 2 * lengths[2]
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.05)
    assert lengths[2] == pytest.approx(2 * lengths[3], rel=0.05)


async def test_a_strict_language_needs_a_voice_for_it(http: httpx.AsyncClient) -> None:
    """With `strict_language`, Polish is an error and no English voice; without it, it is spoken."""
    body = {"input": "Dzień dobry, w czym mogę dzisiaj pomóc?", "response_format": "pcm"}
    assert (await http.post("/v1/audio/speech", json=body)).status_code == 200
    refused = await http.post("/v1/audio/speech", json=body | {"strict_language": True})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == ErrorCode.LANGUAGE_UNAVAILABLE


async def test_server_sent_events(http: httpx.AsyncClient) -> None:
    """With `stream_format` `sse`, audio arrives as base64 deltas, and an event marks the end."""
    body = {"input": SENTENCE, "response_format": "pcm", "stream_format": "sse"}
    response = await http.post("/v1/audio/speech", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, end = response.text.split("\n\n")
    assert end == ""
    *deltas, last = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert last["type"] == "speech.audio.done"
    assert len(b"".join(base64.b64decode(event["audio"]) for event in deltas)) > 48_000


# SimpliSmart's names for the same fields


async def answered(
    server: RunningServer, http: httpx.AsyncClient, path: str, body: dict[str, Any], **headers: str
) -> tuple[httpx.Response, int]:
    """Post a request; return the answer and the number of samples that the engine made for it."""
    before = metric_value(server, "tts_audio_seconds_total")
    response = await http.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    made_s = metric_value(server, "tts_audio_seconds_total") - before
    return response, round(made_s * SAMPLE_RATE_HZ)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("container_format", CONTENT_TYPES)
async def test_the_audio_has_the_rate_that_was_asked_for(
    http: httpx.AsyncClient, container_format: str, is_streamed: bool, rate_hz: int
) -> None:
    """In every format, streamed or whole; Opus decodes at 48 kHz whatever the rate of its input."""
    body = {"input": "Hello.", "response_format": container_format, "language_type": "English"}
    fields = {"sample_rate": rate_hz, "stream": is_streamed}
    plain = await http.post("/v1/audio/speech", json=body)
    response = await http.post("/v1/audio/speech", json=body | fields)
    samples, found_hz = decode(container_format, response.content)
    if container_format == "pcm":  # its client reads in the headers how to play it
        found_hz = int(response.headers["X-Sample-Rate"])
        assert response.headers["X-Channels"] == "1"
    assert found_hz == (48_000 if container_format == "opus" else rate_hz)
    whole, whole_hz = decode(container_format, plain.content)
    assert len(samples) / found_hz == pytest.approx(len(whole) / whole_hz, abs=0.15)


async def test_a_rate_that_opus_lacks_is_refused(http: httpx.AsyncClient) -> None:
    body = {"input": "Hello.", "response_format": "opus", "sample_rate": 44_100}
    refused = await http.post("/v1/audio/speech", json=body)
    assert refused.status_code == 400
    assert "expected one of 8000, 16000, 24000, 48000 for opus" in refused.text


async def test_linear_samples_for_who_accepts_them(
    shared_server: RunningServer, http: httpx.AsyncClient
) -> None:
    """`Accept: audio/L16` is answered with little-endian PCM, unless the request names a format."""
    body = {"text": SENTENCE, "language": "English"}
    path, accept = "/v1/audio/speech", "audio/L16"
    response, made = await answered(shared_server, http, path, body, accept=accept)
    assert response.headers["content-type"] == "audio/L16;rate=24000;channels=1"
    assert len(response.content) == made * BYTES_PER_SAMPLE
    roughness = [
        np.abs(np.diff(np.frombuffer(response.content, order).astype(np.float64))).mean()
        for order in ("<i2", ">i2")
    ]
    assert roughness[0] < roughness[1] / 10, "speech is smooth, and noise in the wrong order"
    wav = await http.post(path, json=body | {"response_format": "wav"}, headers={"accept": accept})
    assert wav.headers["content-type"] == "audio/wav"


@pytest.mark.parametrize(
    ("fields", "is_batch"),
    [
        ({}, False),
        ({"stream_format": "sse"}, False),
        ({"stream": False, "stream_format": "sse"}, False),
        ({"stream": False}, True),
        ({"priority": "batch"}, True),
        ({"priority": "live", "stream": False}, False),
    ],
)
async def test_a_streamed_body_has_a_listener(fields: dict[str, Any], is_batch: bool) -> None:
    """Audio that is sent while it is generated has deadlines, unless the request declines them."""
    body = SpeechRequest.model_validate({"input": SENTENCE, **fields})
    assert body.options(Served()).speech.is_batch is is_batch


@pytest.mark.parametrize("is_kept", [True, False])
async def test_leading_silence_is_kept_or_cut(is_kept: bool) -> None:
    """As `leading_silence` says; without it, it is cut."""
    asked = SpeechRequest.model_validate({"input": SENTENCE, "leading_silence": is_kept})
    assert asked.options(Served()).speech.keeps_silence is is_kept
    plain = SpeechRequest.model_validate({"input": SENTENCE})
    assert not plain.options(Served()).speech.keeps_silence


# Cartesia's endpoint


async def test_cartesias_bytes_are_the_samples(
    shared_server: RunningServer, http: httpx.AsyncClient
) -> None:
    """`POST /tts/bytes` answers with samples in the requested rate and encoding."""
    audio = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
    body = {
        "model_id": "sonic-3",
        "transcript": SENTENCE,
        "voice": {"mode": "id", "id": "nova"},
        "language": "en",
        "output_format": audio,
        "generation_config": {"speed": 1.5, "emotion": "calm"},
    }
    plain, made = await answered(shared_server, http, "/tts/bytes", body)
    assert len(plain.content) == made * BYTES_PER_SAMPLE
    assert 1.0 < made / SAMPLE_RATE_HZ < 2.5, "spoken faster than the 2.9 s that it takes"
    telephone = {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}
    small, made = await answered(
        shared_server, http, "/tts/bytes", body | {"output_format": telephone}
    )
    assert len(small.content) == round(made / 3)
    for answer, rate_hz in ((plain, "24000"), (small, "8000")):
        assert (answer.headers["X-Sample-Rate"], answer.headers["X-Channels"]) == (rate_hz, "1")
    for wrong, named in (
        ({"output_format": audio | {"container": "mp3"}}, "output_format.container"),
        ({"output_format": audio | {"sample_rate": 11025}}, "output_format.sample_rate"),
        ({"voice": {"mode": "id", "id": "nobody"}}, "nobody"),
    ):
        refused = await http.post("/tts/bytes", json=body | wrong)
        assert refused.status_code == 400
        assert named in refused.json()["error"]["message"]


@pytest.mark.parametrize("container_format", CONTENT_TYPES)
async def test_without_streaming_the_length_is_known(
    http: httpx.AsyncClient, container_format: str
) -> None:
    """With `stream: false` the answer has its length, and a WAV file the header of its samples."""
    body = {"input": "Hello there.", "response_format": container_format, "stream": False}
    answer = await http.post("/v1/audio/speech", json=body)
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert answer.headers["Content-Type"] == CONTENT_TYPES[container_format]
    samples, rate_hz = decode(container_format, answer.content)
    assert 0.5 < len(samples) / rate_hz < 2.0
    if container_format == "wav":
        with wave.open(io.BytesIO(answer.content)) as file:
            assert file.getnframes() == len(samples)
    if container_format == "flac":
        assert soundfile.info(io.BytesIO(answer.content)).frames == len(samples)
        whole, _ = soundfile.read(io.BytesIO(answer.content), dtype="int16")
        assert np.array_equal(whole, samples)


@pytest.mark.asyncio(loop_scope="function")
async def test_an_answer_that_is_too_long_to_collect_is_an_error(start_server: StartServer) -> None:
    """`max_audio_s` bounds what `stream: false` keeps in memory; a longer text is refused."""
    server = await start_server(max_audio_s=1.0)
    body = {"input": "Hello there. " * 40, "response_format": "wav", "stream": False}
    async with httpx.AsyncClient(base_url=server.url) as http:
        answer = await http.post("/v1/audio/speech", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "text_too_long"


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/audio/speech", {"input": "Hello there. " * 40}),
        ("/v1/text-to-speech/en", {"text": "Hello there. " * 40}),
    ],
)
async def test_a_body_that_ends_early_is_counted_and_logged_with_its_code(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any]
) -> None:
    """The client misses the last chunk; the log has the code of the error and no traceback."""
    server = await start_server(max_audio_s=1.0)
    async with httpx.AsyncClient(base_url=server.url) as http:
        with capture_logs() as logs, pytest.raises(httpx.RemoteProtocolError):
            await http.post(path, json=body)
        await until(
            lambda: metric_value(server, "tts_errors_total", code="text_too_long") == 1, "counted"
        )
    request = next(line for line in logs if line["event"] == "http_request")
    assert (request["status"], request["code"]) == (200, "text_too_long")
    assert not [record for record in caplog.records if record.exc_info]


async def test_codecs_compute_beside_the_event_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listener waits for an encoder, in a stream, in events, or in a file."""
    threads: set[threading.Thread] = set()
    push = ContainerEncoder.push

    def noted(encoder: ContainerEncoder, pcm: bytes) -> bytes:
        threads.add(threading.current_thread())
        return push(encoder, pcm)

    monkeypatch.setattr(ContainerEncoder, "push", noted)
    async with httpx.AsyncClient(base_url=shared_server.url, timeout=PATIENCE_S) as http:
        for options in ({}, {"stream": False}, {"stream_format": "ndjson"}):
            body = {"input": "Hello.", "response_format": "opus", **options}
            assert (await http.post("/v1/audio/speech", json=body)).status_code == 200
        assert (await http.post("/v1/text-to-speech/en", json={"text": "Hello."})).is_success
    assert threads
    assert threading.current_thread() not in threads
