"""ElevenLabs' endpoints on the real engine: sockets, HTTP routes, keys and errors."""

import asyncio
import base64
import contextlib
import io
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from testbed.raw_websocket import CLOSE, TEXT, frame, raw_websocket
from testbed.servers import metric_value
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.dialects.elevenlabs_routes import MAX_WAITING, MAX_WAITING_PER_ADDRESS
from voiceagent_tts.plugins.speech.containers import ContainerEncoder
from voiceagent_tts.server.connections import SocketProtocol
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.server.state import CLOSE_GRACE_S
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.options import ContextOptions

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCE = "The quick brown fox jumps over the lazy dog."


@contextlib.asynccontextmanager
async def connected(
    server: RunningServer,
    kind: str = "multi-stream",
    voice: str = "default",
    address: str | None = None,
    **query: str,
) -> AsyncIterator[ClientConnection]:
    """Open a socket for raw messages; `address` is that of a client behind a proxy."""
    options = "&".join(f"{name}={value}" for name, value in query.items())
    url = f"ws{server.url.removeprefix('http')}/v1/text-to-speech/{voice}/{kind}-input?{options}"
    headers = {} if address is None else {"X-Forwarded-For": address}
    async with connect(url, additional_headers=headers, max_size=None) as websocket:
        yield websocket


async def send(websocket: ClientConnection, **fields: Any) -> None:
    """Send one message."""
    await websocket.send(json.dumps(fields))


async def until_final(websocket: ClientConnection) -> list[dict[str, Any]]:
    """Return all messages up to the last one of a context."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while not messages or not messages[-1].get("isFinal"):
            messages.append(json.loads(await websocket.recv()))
    return messages


def audio_of(messages: list[dict[str, Any]]) -> bytes:
    """The audio in messages."""
    return b"".join(base64.b64decode(m["audio"]) for m in messages if m.get("audio"))


async def test_a_text_is_spoken_with_its_characters(shared_server: RunningServer) -> None:
    """`stream-input`: audio, characters that are the text, the last message, and close 1000."""
    async with connected(shared_server, "stream", output_format="pcm_16000") as websocket:
        await send(websocket, text=" ", voice_settings={"stability": 0.5}, xi_api_key="none")
        for word in SENTENCE.split():
            await send(websocket, text=f"{word} ", try_trigger_generation=True)
        await send(websocket, text="")
        messages = await until_final(websocket)
        await websocket.wait_closed()
        assert websocket.close_code == 1000
    chars = [c for m in messages if m.get("alignment") for c in m["alignment"]["chars"]]
    assert "".join(chars).strip() == SENTENCE
    chunks = [m["alignment"] for m in messages if m.get("alignment")]
    spans = [c["charStartTimesMs"][-1] + c["charDurationsMs"][-1] for c in chunks]
    assert sum(spans) <= len(audio_of(messages)) / 2 / 16 < sum(spans) + 1000


@pytest.mark.parametrize("query", [{}, {"output_format": "opus_48000_32"}], ids=["mp3", "opus"])
async def test_compressed_audio_is_made_beside_the_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    """Two contexts of a socket have all of their audio, in order; the loop encodes none of it.

    Without a format it is MP3.
    """
    threads = set[str]()
    for name in ("__init__", "push", "finish"):
        work = getattr(ContainerEncoder, name)

        def noted(*arguments: Any, work: Callable[..., Any] = work) -> Any:
            threads.add(threading.current_thread().name)
            return work(*arguments)

        monkeypatch.setattr(ContainerEncoder, name, noted)
    files = {"a": b"", "b": b""}
    async with connected(shared_server, **query) as websocket:
        for name in files:
            await send(websocket, context_id=name, text=f"{SENTENCE} ", flush=True)
            await send(websocket, context_id=name, close_context=True)
        for _ in files:
            for message in await until_final(websocket):
                files[message["contextId"]] += audio_of([message])
    assert threads and all(name.startswith("stream-encoder") for name in threads)
    for data in files.values():
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            assert file.format == ("OGG" if query else "MP3")
            samples, rate_hz = file.read(), file.samplerate
        assert 2 < len(samples) / rate_hz < 5 and abs(samples).max() > 0.1


async def test_a_bad_address_is_refused(shared_server: RunningServer) -> None:
    """An unknown format or endpoint is refused before the upgrade."""
    for kind, query, status in (("stream", {"output_format": "x"}, 400), ("other", {}, 404)):
        with pytest.raises(InvalidStatus) as refused:
            async with connected(shared_server, kind, **query):
                pass
        assert refused.value.response.status_code == status


@pytest.mark.parametrize("voice", ["%00", "a" * 129])
async def test_an_id_that_no_voice_can_have_is_refused(
    shared_server: RunningServer, http: httpx.AsyncClient, voice: str
) -> None:
    """Sockets are refused before the upgrade, with the error of HTTP; nothing fails."""
    answer = await http.post(f"/v1/text-to-speech/{voice}", json={"text": "Yes."})
    with pytest.raises(InvalidStatus) as refused:
        async with connected(shared_server, "stream", voice):
            pass
    assert refused.value.response.status_code == answer.status_code == 400
    assert answer.json()["detail"]["status"] == "voice_id_does_not_exist"


async def test_http_speaks_in_every_format(http: httpx.AsyncClient) -> None:
    """`POST /v1/text-to-speech/{voice_id}` and `/stream` send the format asked for."""
    for path in ("", "/stream"):
        answer = await http.post(
            f"/v1/text-to-speech/default{path}?output_format=pcm_8000", json={"text": "Yes."}
        )
        assert answer.headers["content-type"] == "audio/pcm"
        assert len(answer.content) > 2000
    answer = await http.post("/v1/text-to-speech/default", json={"text": "Yes."})
    assert answer.headers["content-type"] == "audio/mpeg"


@pytest.mark.parametrize("route", ["", "/stream", "/stream/with-timestamps"])
async def test_a_streamed_body_has_the_deadlines_of_a_listener(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """Agents play the audio of these routes on arrival, so it is not in the batch class."""
    opened: list[ContextOptions] = []
    synthesizer = shared_server.state.synthesizer
    open_context = synthesizer.open

    async def open_noted(options: ContextOptions, *args: Any, **more: Any) -> Context:
        opened.append(options)
        return await open_context(options, *args, **more)

    monkeypatch.setattr(synthesizer, "open", open_noted)
    async with httpx.AsyncClient(base_url=shared_server.url) as http:
        response = await http.post(f"/v1/text-to-speech/default{route}", json={"text": SENTENCE})
    assert response.status_code == 200
    assert [options.speech.is_batch for options in opened] == [False]


async def test_http_sends_times_of_characters(http: httpx.AsyncClient) -> None:
    """`/stream/with-timestamps` sends lines of audio and characters, which are the text."""
    answer = await http.post(
        "/v1/text-to-speech/default/stream/with-timestamps?output_format=pcm_24000",
        json={"text": SENTENCE, "voice_settings": {"speed": 1.5}},
    )
    lines = [json.loads(line) for line in answer.text.splitlines()]
    timed = [line["alignment"] for line in lines if line["alignment"]]
    assert "".join(char for each in timed for char in each["characters"]).strip() == SENTENCE
    starts = [start for each in timed for start in each["character_start_times_seconds"]]
    for each in timed:
        assert each["character_end_times_seconds"][:-1] == each["character_start_times_seconds"][1:]
    audio_s = sum(len(base64.b64decode(line["audio_base64"])) for line in lines) / 48_000
    assert starts == sorted(starts) and starts[-1] < audio_s


async def test_voices_are_listed(http: httpx.AsyncClient, shared_server: RunningServer) -> None:
    """`GET /v1/voices` names every voice in ElevenLabs' form."""
    voices = (await http.get("/v1/voices")).json()["voices"]
    names = {voice["voice_id"] for voice in voices}
    assert set(shared_server.state.synthesizer.voices.names()) <= names
    assert {"voice_id", "name", "category", "labels"} <= voices[0].keys()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("nobody", {"text": "Hi."}, "voice_id_does_not_exist"),
        ("default", {"text": 5}, "invalid_param"),
    ],
)
async def test_http_errors_have_their_form(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], status: str
) -> None:
    """An error is `{"detail": {"status", "message"}}`."""
    answer = await http.post(f"/v1/text-to-speech/{path}", json=body)
    assert answer.status_code == 400
    assert answer.json()["detail"]["status"] == status


@pytest_asyncio.fixture(loop_scope="module")
async def locked() -> AsyncIterator[RunningServer]:
    """A server that needs a key."""
    async with running(Settings(port=0, api_keys=("right",))) as server:
        yield server


async def speaks_with_key(websocket: ClientConnection) -> bool:
    """Whether a text has audio whose first message has the key."""
    await send(websocket, text="Yes. ", xi_api_key="right")
    await send(websocket, text="")
    return bool(audio_of(await until_final(websocket)))


async def test_the_key_may_be_in_the_first_message(locked: RunningServer) -> None:
    """The right key is accepted there; a wrong one, and none, are answered and closed with 1008."""
    server = locked
    async with connected(server, "stream", output_format="pcm_8000") as websocket:
        assert await speaks_with_key(websocket)
    for first in ({"text": "Yes.", "xi_api_key": "wrong"}, {"text": "Yes."}):
        async with connected(server) as websocket:
            await send(websocket, **first)
            assert json.loads(await websocket.recv())["error"] == "invalid_api_key"
            with pytest.raises(ConnectionClosed):
                await websocket.recv()
            assert websocket.close_code == 1008
    assert metric_value(server, "tts_ws_accepted_total") == 1


async def test_sockets_without_a_key_are_few(
    locked: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that wait for their key have a limit, also those of one address.

    When all places are taken, the address with the most loses its oldest socket to a newcomer. One
    that leaves makes room, without a trace.
    """
    async with contextlib.AsyncExitStack() as stack:
        oldest = await stack.enter_async_context(connected(locked))
        for _ in range(MAX_WAITING_PER_ADDRESS - 1):
            await stack.enter_async_context(connected(locked))
        with pytest.raises(InvalidStatus) as refused:
            await stack.enter_async_context(connected(locked))
        assert refused.value.response.status_code == 503
        others = [f"192.0.2.{n}" for n in range(MAX_WAITING // MAX_WAITING_PER_ADDRESS - 1)]
        for address in others:
            for _ in range(MAX_WAITING_PER_ADDRESS):
                await stack.enter_async_context(connected(locked, address=address))
        newcomer = connected(locked, "stream", output_format="pcm_8000", address="198.51.100.1")
        async with newcomer as websocket:
            assert json.loads(await oldest.recv())["error"] == "invalid_api_key"
            assert await speaks_with_key(websocket)
    await until(lambda: not locked.uvicorn_server.server_state.connections, "all are closed")
    async with connected(locked, "stream", output_format="pcm_8000") as websocket:
        assert await speaks_with_key(websocket)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_refused_socket_does_not_wait_long_for_its_client(locked: RunningServer) -> None:
    """It counts no more: with 10 s for the answer to a close, an address had 32 such sockets."""
    connections = locked.uvicorn_server.server_state.connections
    path = "/v1/text-to-speech/default/multi-stream-input"
    async with raw_websocket(locked.url, path) as raw:
        await raw.send(frame(TEXT, b"{}"))
        assert json.loads((await raw.receive())[1])["error"] == "invalid_api_key"
        assert (await raw.receive())[0] == CLOSE
        (protocol,) = (each for each in connections if isinstance(each, SocketProtocol))
        assert protocol.close_timer is not None
        left_s = protocol.close_timer.when() - asyncio.get_running_loop().time()
        assert left_s <= CLOSE_GRACE_S


async def test_the_key_may_be_in_a_header(locked: RunningServer) -> None:
    """`xi-api-key` is accepted by HTTP routes; without it the answer is 401 in ElevenLabs' form."""
    async with httpx.AsyncClient(base_url=locked.url) as client:
        right = await client.get("/v1/voices", headers={"xi-api-key": "right"})
        wrong = await client.get("/v1/voices")
    assert right.status_code == 200
    assert (wrong.status_code, wrong.json()["detail"]["status"]) == (401, "invalid_api_key")
