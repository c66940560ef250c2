"""All endpoints of the server mark their audio and say whence it comes; files can be examined."""

import asyncio
import base64
import hashlib
import io
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio
import soundfile
from websockets.asyncio.client import connect

from testbed.c2pa_certificates import certificate_files, manifest_of
from testbed.waiting import PATIENCE_S, until
from testbed.watermarks import OTHER_KEY, TEST_KEY, as_floats, speech_pcm
from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.plugins.provenance.detector import detect
from voiceagent_tts.plugins.provenance.watermark import mark
from voiceagent_tts.plugins.recordings.file_reader import AudioLimits
from voiceagent_tts.plugins.recordings.places import MAX_PLACES, Places
from voiceagent_tts.protocol.messages import AudioFormat
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on in the warm sun. " * 2
SPEECH = {"model": "tts-1", "input": TEXT, "voice": "nova", "language": "en"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signing_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server that signs its files."""
    files = certificate_files(tmp_path_factory.mktemp("c2pa"))
    async with running(Settings.model_validate({"port": 0, **files})) as server:
        yield server


def assert_marked(samples: np.ndarray) -> None:
    """The key of the tests, and no other, is found in [S] float32 at 24 kHz."""
    found = detect(samples, [OTHER_KEY, TEST_KEY])
    assert found.is_marked and found.key_id == TEST_KEY.id


def as_wav(pcm: bytes) -> bytes:
    """A WAV file of PCM16 at 24 kHz."""
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(pcm, "<i2"), SAMPLE_RATE_HZ, format="WAV")
    return file.getvalue()


async def test_a_socket_is_marked_and_says_so(wire: Wire) -> None:
    """`done` has the digest of the received audio, the model, the time and the key's id."""
    received = await wire.say(TEXT, voice="nova", language="en")
    assert_marked(as_floats(bytes(received.pcm)))
    provenance = received.done.provenance
    assert provenance is not None
    assert provenance.sha256 == hashlib.sha256(received.pcm).hexdigest()
    assert provenance.model.startswith("espeak-ng") and provenance.key_id == TEST_KEY.id
    assert provenance.time.startswith("20") and provenance.time.endswith("+00:00")


async def test_every_encoding_has_its_digest(wire: Wire) -> None:
    """The digest is of the bytes as they were sent, also for mu-law at 8 kHz."""
    audio = AudioFormat(encoding="pcm_mulaw", sample_rate=8000)
    received = await wire.say("Hello there.", language="en", audio=audio)
    assert received.done.provenance is not None
    assert received.done.provenance.sha256 == hashlib.sha256(received.pcm).hexdigest()


async def test_a_cancelled_context_states_what_was_sent(wire: Wire) -> None:
    """After a barge-in the digest is of the audio that left; without audio there is none."""
    received = await wire.open(language="en")
    await wire.text(received, TEXT * 5)
    await wire.end(received)
    await until_audio(wire, received)
    await wire.stop(received)
    assert received.done.provenance is not None
    assert received.done.provenance.sha256 == hashlib.sha256(received.pcm).hexdigest()
    silent = await wire.open(language="en")
    await wire.speak(silent)
    assert silent.done.provenance is None


async def until_audio(wire: Wire, received: Any) -> None:
    """Read until the context has audio."""
    while not received.pcm:
        await wire.receive()


async def test_marking_changes_no_length_and_no_word() -> None:
    """A server that does not mark sends as many samples, the same words and times."""
    results = []
    for watermark in (True, False):
        # espeak speaks a text identically only as the first text of its process.
        async with (
            running(Settings(port=0, watermark=watermark)) as server,
            Wire.connected(server.websocket_url) as wire,
        ):
            results.append(await wire.say(TEXT, voice="nova", language="en"))
    marked, plain = results
    assert len(marked.pcm) == len(plain.pcm) and marked.words == plain.words
    assert marked.pcm != plain.pcm
    assert plain.done.provenance is not None and plain.done.provenance.key_id is None
    assert not detect(as_floats(bytes(plain.pcm)), [TEST_KEY]).is_marked


@pytest.mark.parametrize("container_format", ["wav", "flac", "mp3"])
async def test_http_answers_are_marked(http: httpx.AsyncClient, container_format: str) -> None:
    """A streamed file is marked; its header names the model and the key, not yet the digest."""
    body = {**SPEECH, "response_format": container_format}
    response = await http.post("/v1/audio/speech", json=body)
    assert json.loads(response.headers["x-provenance"])["key_id"] == TEST_KEY.id
    assert json.loads(response.headers["x-provenance"])["sha256"] is None
    to_pcm16 = av.AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
    with av.open(io.BytesIO(response.content)) as container:
        frames = [part for f in container.decode(audio=0) for part in to_pcm16.resample(f)]
    assert_marked(as_floats(np.concatenate([f.to_ndarray()[0] for f in frames]).tobytes()))


async def test_a_whole_answer_has_its_digest(http: httpx.AsyncClient) -> None:
    """Without streaming, the header has the digest of the samples."""
    body = {**SPEECH, "response_format": "pcm", "stream": False}
    response = await http.post("/v1/audio/speech", json=body)
    provenance = json.loads(response.headers["x-provenance"])
    assert provenance["sha256"] == hashlib.sha256(response.content).hexdigest()
    assert_marked(as_floats(response.content))


async def test_server_sent_events_end_with_the_provenance(http: httpx.AsyncClient) -> None:
    """The last event has the digest of the samples in the others."""
    body = {**SPEECH, "response_format": "pcm", "stream_format": "sse"}
    response = await http.post("/v1/audio/speech", json=body)
    events = [json.loads(line[6:]) for line in response.text.split("\n") if line]
    pcm = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert events[-1]["provenance"]["sha256"] == hashlib.sha256(pcm).hexdigest()
    assert_marked(as_floats(pcm))


CARTESIA: dict[str, Any] = {
    "model_id": "sonic-2", "transcript": TEXT, "voice": {"mode": "id", "id": "nova"},
    "language": "en",
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
}  # fmt: skip
ELEVENLABS = {"text": TEXT, "language_code": "en"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tts/bytes", CARTESIA),
        ("/v1/text-to-speech/nova?output_format=pcm_24000", ELEVENLABS),
        ("/v1/text-to-speech/nova/stream/with-timestamps?output_format=pcm_24000", ELEVENLABS),
    ],
    ids=["cartesia", "elevenlabs", "timestamps"],
)
async def test_http_routes_of_dialects_are_marked(
    http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    """Their audio has the mark, and the header says so."""
    response = await http.post(path, json=body)
    assert json.loads(response.headers["x-provenance"])["key_id"] == TEST_KEY.id
    pcm = response.content
    if "timestamps" in path:
        lines = [json.loads(line) for line in response.text.splitlines() if line]
        pcm = b"".join(base64.b64decode(line["audio_base64"] or "") for line in lines)
    assert_marked(as_floats(pcm))


async def test_cartesias_socket_is_marked(shared_server: RunningServer) -> None:
    """The audio of its messages has the mark."""
    url, pcm = shared_server.websocket_url.replace("/v1/tts/ws", "/tts/websocket"), b""
    async with connect(url) as socket:
        await socket.send(json.dumps({**CARTESIA, "context_id": "c1"}))
        while not (event := json.loads(await socket.recv())).get("done"):
            pcm += base64.b64decode(event.get("data", ""))
    assert_marked(as_floats(pcm))


async def test_vllm_omnis_door_is_marked(shared_server: RunningServer) -> None:
    """Its socket has the mark."""
    url = shared_server.websocket_url.replace("/v1/tts/ws", "/v1/audio/speech/stream")
    pcm = b""
    config = {"type": "session.config", "voice": "nova", "language": "en", "response_format": "pcm"}
    async with connect(url) as socket:
        for message in (config, {"type": "input.text", "text": TEXT}, {"type": "input.done"}):
            await socket.send(json.dumps(message))
        while True:
            event = await socket.recv()
            if isinstance(event, bytes):
                pcm += event
            elif json.loads(event)["type"] == "session.done":
                break
    assert_marked(as_floats(pcm))


async def test_a_file_is_examined(http: httpx.AsyncClient) -> None:
    """The detector finds the server's own speech, and not other speech."""
    for pcm, is_marked in ((mark(speech_pcm(), TEST_KEY), True), (speech_pcm(), False)):
        files = {"file": ("clip.wav", as_wav(pcm))}
        answer = (await http.post("/v1/provenance/detect", files=files)).json()
        assert answer["is_marked"] is is_marked
        assert answer["key_id"] == (TEST_KEY.id if is_marked else None)
        assert (answer["score"] >= answer["threshold"]) is is_marked
        assert answer["duration_s"] == pytest.approx(len(pcm) / 48_000, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"\0" * 1000, 400),
        (b"RIFF\0\0\0\0WAVEjunk", 400),
        (as_wav(bytes(2 * 2_400)), 400),
        (b"fLaC" + b"x" * (33 << 20), 413),
    ],
    ids=["empty", "zeros", "broken", "too short", "too big"],
)
async def test_a_bad_file_is_refused(http: httpx.AsyncClient, content: bytes, status: int) -> None:
    """What is no audio, too short or too big has an answer with a reason."""
    response = await http.post("/v1/provenance/detect", files={"file": ("clip.wav", content)})
    assert response.status_code == status
    assert response.json()["error"]["message"]


class Decoding:
    """In place of `read_audio`: notes each file, and holds it until the test ends."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self._is_free = threading.Event()

    def __call__(self, data: bytes, limits: AudioLimits) -> npt.NDArray[np.float32]:
        self.begun.append(data)
        self._is_free.wait(PATIENCE_S)
        return np.zeros(SAMPLE_RATE_HZ, np.float32)

    def end(self) -> None:
        """Go on."""
        self._is_free.set()


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoding]:
    """Files that stay in the decoder."""
    decoding = Decoding()
    monkeypatch.setattr("voiceagent_tts.plugins.provenance.server.read_audio", decoding)
    yield decoding
    decoding.end()


async def test_a_key_that_examines_many_files_leaves_places_to_others(
    tmp_path: Path, decoding: Decoding
) -> None:
    """It has a quarter of them, and is refused beyond that, before another key is."""
    keys = {name: make_key(name, frozenset({Scope.SPEAK}), Quota()) for name in ("one", "two")}
    document = KeyDocument(keys=tuple(each.key for each in keys.values()))
    (tmp_path / "keys.json").write_text(document.dump())
    settings = Settings(port=0, keys=str(tmp_path / "keys.json"))
    async with running(settings) as server, httpx.AsyncClient(timeout=PATIENCE_S) as http:

        def examine(name: str) -> asyncio.Task[httpx.Response]:
            headers = {"Authorization": f"Bearer {keys[name].secret}"}
            url = f"{server.url}/v1/provenance/detect"
            asked = http.post(url, files={"file": ("a.wav", b"x")}, headers=headers)
            return asyncio.create_task(asked)

        of_one = [examine("one") for _ in range(MAX_PLACES // 4 + 3)]
        await until(lambda: sum(each.done() for each in of_one) == 3, "three are refused")
        of_two = examine("two")
        decoding.end()
        assert (await of_two).status_code == 200
        codes = Counter([answer.status_code for answer in await asyncio.gather(*of_one)])
    assert codes == {200: MAX_PLACES // 4, 503: 3}


async def test_a_file_whose_client_has_left_is_not_examined(
    shared_server: RunningServer, decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waited for its turn."""
    taken, take = list[str | None](), Places.take

    def noted(places: Places, key_id: str | None) -> AbstractContextManager[None]:
        taken.append(key_id)
        return take(places, key_id)

    monkeypatch.setattr(Places, "take", noted)

    async def examine(name: bytes) -> httpx.Response:
        async with httpx.AsyncClient(base_url=shared_server.url, timeout=PATIENCE_S) as http:
            return await http.post("/v1/provenance/detect", files={"file": ("a.wav", name)})

    first = [asyncio.create_task(examine(name)) for name in (b"a", b"b")]
    await until(lambda: len(decoding.begun) == 2, "both decoders work")
    leaving = asyncio.create_task(examine(b"gone"))
    await until(lambda: len(taken) == 3, "the third waits")
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    decoding.end()
    await asyncio.gather(*first)
    assert (await examine(b"last")).status_code == 200
    assert sorted(decoding.begun) == [b"a", b"b", b"last"]


async def test_a_server_without_marks_has_no_detector() -> None:
    """It has no keys to look for, and says so."""
    async with (
        running(Settings(port=0, watermark=False)) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        files = {"file": ("clip.wav", as_wav(speech_pcm()))}
        response = await http.post("/v1/provenance/detect", files=files)
    assert response.status_code == 501 and response.json()["error"]["code"] == "not_supported"


@pytest.mark.parametrize("audio_format", ["wav", "mp3", "flac", "opus"])
async def test_whole_files_are_signed(signing_server: RunningServer, audio_format: str) -> None:
    """Files that can have a C2PA manifest get one; the others are as before."""
    types = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "opus": "audio/ogg"}
    body = {**SPEECH, "input": "Hello.", "response_format": audio_format, "stream": False}
    async with httpx.AsyncClient(base_url=signing_server.url, timeout=PATIENCE_S) as http:
        response = await http.post("/v1/audio/speech", json=body)
    if audio_format == "opus":
        assert response.content.startswith(b"OggS")
        return
    stated = manifest_of(response.content, types[audio_format])["org.voiceagent-tts.provenance"]
    assert stated == json.loads(response.headers["x-provenance"])
    await until(lambda: not signing_server.state.synthesizer.contexts_active, "the context ends")
