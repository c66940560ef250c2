"""Speech as lines of JSON with the times of its words, and as a whole file."""

import asyncio
import base64
import hashlib
import io
import json

import httpx
import pytest
import soundfile

from testbed.loop_work import loop_work
from testbed.waiting import PATIENCE_S
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_BYTES = 400_000
"""Bytes that functions make in one iteration of the event loop: some milliseconds."""
LINES = {"voice": "nova", "language": "en", "response_format": "pcm", "stream_format": "ndjson"}


async def test_lines_have_words_before_their_audio(http: httpx.AsyncClient) -> None:
    text = "The first sentence is short. The second one has a few more words in it."
    response = await http.post("/v1/audio/speech", json={**LINES, "input": text})
    assert response.headers["content-type"] == "application/x-ndjson"
    *lines, done = [json.loads(line) for line in response.text.splitlines()]
    pcm, words = b"", []
    for line in lines:
        if line["type"] == "speech.audio.words":
            assert line["start_ms"][0] * 48 >= len(pcm), "the word comes after its sound"
            words += zip(line["words"], line["char_start"], line["char_end"], strict=True)
        else:
            assert line["type"] == "speech.audio.delta"
            pcm += base64.b64decode(line["audio"])
    assert [word for word, _, _ in words] == text.split()
    assert all(text[start:end] == word for word, start, end in words)
    assert done["type"] == "speech.audio.done"
    assert done["audio_ms"] == round(len(pcm) / 48)
    assert done["provenance"]["sha256"] == hashlib.sha256(pcm).hexdigest()


@pytest.mark.parametrize(
    ("stream_format", "prefix"), [("ndjson", ""), ("sse", "data: ")], ids=["lines", "events"]
)
async def test_an_error_after_the_first_audio_is_the_last_object(
    stream_format: str, prefix: str
) -> None:
    """A text that is longer than the server allows ends with an error in place of `done`."""
    async with (
        running(Settings(port=0, max_audio_s=3)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http,
    ):
        body = {**LINES, "input": "This goes on and on. " * 20, "stream_format": stream_format}
        response = await http.post("/v1/audio/speech", json=body)
    objects = [json.loads(line.removeprefix(prefix)) for line in response.text.split("\n") if line]
    assert objects[-1]["type"] == "error"
    assert objects[-1]["error"]["code"] == "text_too_long"
    assert all(each["type"] != "speech.audio.done" for each in objects)


async def test_no_file_makes_a_long_turn_of_the_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is: others have a turn between its parts."""
    text = "This is a long text. " * 30
    body = {"input": text, "response_format": "wav", "language": "en", "stream": False}
    url = f"{shared_server.url}/v1/audio/speech"
    with loop_work(monkeypatch) as work:
        answer = await asyncio.to_thread(httpx.post, url, json=body, timeout=PATIENCE_S)
    audio = answer.content
    assert len(audio) > 4 * MOST_BYTES and soundfile.read(io.BytesIO(audio))[1] == 24_000
    assert work.most_bytes < MOST_BYTES
