"""Several texts in one request, each a file of its own."""

import asyncio
import base64
import hashlib
import io
import json
from typing import Any

import httpx
import pytest
import soundfile
from structlog.testing import capture_logs

from testbed.loop_work import loop_work
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.jobs import batch as batches
from voiceagent_tts.plugins.jobs.batch import MAX_ITEMS
from voiceagent_tts.server import held
from voiceagent_tts.server.admission import AdmittedContext
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = "/v1/audio/speech/batch"
MOST_CALLS = 40_000
"""Calls in one iteration of the event loop: about 10 ms."""
MOST_BYTES = 400_000
"""Bytes that functions make in one iteration of the event loop: some milliseconds."""


async def batch(http: httpx.AsyncClient, **body: Any) -> httpx.Response:
    """Send a batch."""
    return await http.post(BATCH, json=body)


async def test_results_are_in_order(http: httpx.AsyncClient) -> None:
    """Each text becomes a file with its own settings; shared fields are defaults."""
    items = [
        {"input": "One."},
        {"input": "Das ist der zweite Text.", "language": "de"},
        {"input": "Three, and a little more text.", "response_format": "flac"},
    ]
    answer = await batch(http, items=items, voice="nova", language="en", response_format="wav")
    body = answer.json()
    assert (body["total"], body["succeeded"], body["failed"]) == (3, 3, 0)
    assert [result["index"] for result in body["results"]] == [0, 1, 2]
    types = [result["content_type"] for result in body["results"]]
    assert types == ["audio/wav", "audio/wav", "audio/flac"]
    for result in body["results"]:
        samples, rate_hz = soundfile.read(
            io.BytesIO(base64.b64decode(result["audio"])), dtype="<i2"
        )
        assert result["audio_ms"] == round(1000 * len(samples) / rate_hz)
        assert result["provenance"]["sha256"] == hashlib.sha256(samples.tobytes()).hexdigest()


async def test_lines_arrive_as_they_are_ready(http: httpx.AsyncClient) -> None:
    """With `ndjson` every text has one line, whatever the order."""
    items = [{"input": "Long text. " * 30}, *({"input": f"Text {number}."} for number in range(5))]
    answer = await batch(http, items=items, language="en", stream_format="ndjson")
    results = [json.loads(line) for line in answer.text.splitlines()]
    assert sorted(result["index"] for result in results) == list(range(6))
    assert all(result["audio"] for result in results)


@pytest.mark.parametrize("stream_format", ["json", "ndjson"])
async def test_no_file_makes_a_long_turn_of_the_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch, stream_format: str
) -> None:
    """However long it is: others have a turn between its parts."""
    item = {"input": "This is a long text. " * 30, "response_format": "wav", "language": "en"}
    body = {"items": [item], "stream_format": stream_format}
    url = f"{shared_server.url}{BATCH}"
    with loop_work(monkeypatch) as work:
        answer = await asyncio.to_thread(httpx.post, url, json=body, timeout=PATIENCE_S)
    (result,) = answer.json().get("results", [answer.json()])
    audio = base64.b64decode(result["audio"])
    assert len(audio) > 4 * MOST_BYTES and soundfile.read(io.BytesIO(audio))[1] == 24_000
    assert work.most_bytes < MOST_BYTES


async def test_no_shared_fields_make_a_long_turn_of_the_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all texts share is checked with each, and others have a turn between two."""
    lexicon = {f"w{number}": f"said {number}" for number in range(500)}
    texts = [{"input": "One."}] * (MAX_ITEMS - 1) + [{"input": ""}]
    body = {"items": texts, "lexicon": lexicon, "voice": "nobody"}
    url = f"{shared_server.url}{BATCH}"
    await asyncio.to_thread(httpx.post, url, json={})  # FastAPI prepares routes for the first one
    with loop_work(monkeypatch) as work:
        answer = await asyncio.to_thread(httpx.post, url, json=body, timeout=PATIENCE_S)
    assert answer.json()["failed"] == MAX_ITEMS
    assert work.most < MOST_CALLS


async def test_a_text_that_fails_stops_no_other(http: httpx.AsyncClient) -> None:
    """Its result has the code and the message; the others have audio."""
    items = [
        {"input": "९८७"},
        {"input": "Hello.", "voice": "nobody"},
        {"input": "Hello.", "language": "xx"},
        {"input": "Hello."},
        {"input": "..."},
        {"input": ""},
    ]
    body = (await batch(http, items=items, language="en")).json()
    codes = [result.get("error", {}).get("code") for result in body["results"]]
    wrong = ["text_unspeakable", "invalid_voice", "invalid_language"]
    assert codes == [*wrong, None, None, None]
    assert (body["succeeded"], body["failed"]) == (3, 3)


async def test_an_unexpected_failure_stops_no_other(
    http: httpx.AsyncClient, shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result has the code `internal`; the log says where, and neither has the text."""
    opener = shared_server.state.opener
    open_context = opener.open
    secret = "A secret."

    async def open_or_fail(*args: Any, **options: Any) -> AdmittedContext:
        if options["chars"] == len(secret):
            raise IndexError(secret)
        return await open_context(*args, **options)

    monkeypatch.setattr(opener, "open", open_or_fail)
    items = [{"input": "Hello there."}, {"input": secret}, {"input": "And goodbye."}]
    with capture_logs() as logs:
        body = (await batch(http, items=items, language="en")).json()
    assert (body["succeeded"], body["failed"]) == (2, 1)
    error = body["results"][1]["error"]
    assert error == {
        "code": "internal",
        "message": "the server failed with IndexError",
        "retryable": True,
    }
    (failure,) = [entry for entry in logs if entry["event"] == "server_failed"]
    assert (failure["problem"], failure["index"]) == ("IndexError", 1)
    assert failure["request_id"] and "open_or_fail" in failure["calls"]
    assert secret not in str(failure)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": []},
        {"items": [{"input": "Hello."}] * (MAX_ITEMS + 1)},
        {"items": "Hello."},
        {"items": ["Hello."]},
        {"items": [{}]},
        {"items": [{"input": 5}]},
        {"items": [{"input": "Hello.", "speed": 9}]},
        {"items": [{"input": "Hello."}], "model": "unknown"},
        {"items": [{"input": "x" * 15_000}, {"input": "y" * 15_000}]},
        {"items": [{"input": "Hello."}], "stream_format": "sse"},
    ],
)
async def test_a_wrong_batch_is_refused(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    """A mistake in the body refuses all of it, and the message does not repeat the text."""
    response = await http.post(BATCH, json=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message and "Hello" not in message and "xxx" not in message


async def test_a_text_is_refused_as_if_it_were_alone(http: httpx.AsyncClient) -> None:
    """The error names the item."""
    item = {"input": "Hello.", "ref_audio": "data:audio/wav;base64,AAAA"}
    error = (await batch(http, items=[{"input": "Hello."}, item])).json()["error"]
    assert error["code"] == "not_supported"
    assert error["message"].startswith("items.1.ref_audio: expected")


async def test_more_texts_than_contexts_wait() -> None:
    """A client that may have one context at a time gets all of its texts."""
    async with (
        running(Settings(port=0, ip_limits=Quota(contexts=1))) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as alone,
    ):
        body = (await batch(alone, items=[{"input": "Hello."}] * 5, language="en")).json()
    assert body["succeeded"] == 5


async def test_a_text_that_fails_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that fail after their first audio leave their room to the others."""
    monkeypatch.setattr(held, "MAX_CALLER_BYTES", 250_000)
    monkeypatch.setattr(batches, "_AT_ONCE", 1)
    items = [{"input": "This goes on and on. " * 20}] * 3 + [{"input": "Hello."}]
    async with (
        running(Settings(port=0, max_audio_s=3)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as alone,
    ):
        body = (await batch(alone, items=items, response_format="wav", language="en")).json()
        await until(lambda: not server.state.held, "everything was given back")
    errors = [result.get("error", {}) for result in body["results"]]
    assert [error.get("code") for error in errors] == [*["text_too_long"] * 3, None]
    assert all("max_audio_s" in error["message"] for error in errors[:3])


async def test_files_that_are_too_large_together_fail(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there is room for are answered, and the others have an error that is final."""
    monkeypatch.setattr(held, "MAX_CALLER_BYTES", 150_000)
    monkeypatch.setattr(batches, "_AT_ONCE", 1)
    items = [{"input": "This is a text of two seconds."}] * 3
    body = (await batch(http, items=items, response_format="wav", language="en")).json()
    first, *_, last = body["results"]
    assert first["audio"]
    assert (last["error"]["code"], last["error"]["retryable"]) == ("text_too_long", False)


async def test_a_client_that_goes_cancels_the_rest(shared_server: RunningServer) -> None:
    """After a disconnect no context is left."""
    items = [{"input": "This is a long text. " * 200}] * 3
    async with httpx.AsyncClient(base_url=shared_server.url) as http:
        sending = asyncio.create_task(batch(http, items=items, language="en"))
        synthesizer = shared_server.state.synthesizer
        await until(lambda: synthesizer.contexts_active > 0, "the texts are spoken")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    await until(lambda: not synthesizer.contexts_active, "its contexts are cancelled")
