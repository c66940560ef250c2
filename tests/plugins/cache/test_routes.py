"""The cache over HTTP and WebSocket: a real server with espeak."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from testbed.servers import StartServer, scrape
from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.server.serve import RunningServer

GREETING = "Thank you for calling Acme. How can I help you?"


@pytest_asyncio.fixture
async def server(start_server: StartServer, tmp_path: Path) -> RunningServer:
    """A server that stores every phrase at once, with a request log."""
    return await start_server(cache_mb=20, cache_after=1, request_log=tmp_path / "requests.jsonl")


@pytest_asyncio.fixture
async def http(server: RunningServer) -> Any:
    """An HTTP client."""
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


async def speak(http: httpx.AsyncClient, **fields: Any) -> bytes:
    """Speak a text as PCM."""
    body = {"input": GREETING, "response_format": "pcm", "language": "en", **fields}
    response = await http.post("/v1/audio/speech", json=body)
    assert response.status_code == 200
    return response.content


async def hits(http: httpx.AsyncClient) -> int:
    """The number of hits so far."""
    return (await http.get("/v1/cache")).json()["hits"]


async def test_http_and_websocket_share_phrases(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    """The second request is answered from the cache, with the same samples and with words."""
    first = await speak(http)
    assert await hits(http) == 0
    assert await speak(http) == first
    assert await hits(http) == 2
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say(GREETING, language="en")
        assert [each.word.text for each in received.words] == GREETING.split()
    stats = (await http.get("/v1/cache")).json()
    assert (stats["hits"], stats["misses"]) == (4, 2)
    assert stats["hit_rate"] == pytest.approx(4 / 6, abs=0.01)
    metrics = await scrape(server)
    assert metrics['tts_cache_segments_total{result="hit"}'] == 4
    assert metrics['tts_cache_segments_total{result="miss"}'] == 2
    assert metrics["tts_cache_phrases"] == 2
    assert metrics["tts_cache_audio_seconds_total"] == pytest.approx(2 * len(first) / 48_000)
    assert metrics['tts_words_total{source="cache"}'] == 2 * len(GREETING.split())


async def test_a_request_can_leave_the_cache_out(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    """`cache: false` neither takes nor stores a phrase, over HTTP and on a socket."""
    await speak(http, cache=False)
    async with Wire.connected(server.websocket_url) as wire:
        await wire.say(GREETING, language="en", cache=False)
    stats = (await http.get("/v1/cache")).json()
    assert (stats["hits"], stats["misses"], stats["phrases"], stats["hit_rate"]) == (0, 0, 0, None)


async def test_a_phrase_is_warmed_for_every_place(http: httpx.AsyncClient) -> None:
    """Alone, first, between other sentences, and last; a second time nothing is stored."""
    phrase = "One moment, please."
    answer = (await http.post("/v1/cache", json={"text": phrase, "language": "en"})).json()
    assert (answer["stored"], answer["cached"]) == (4, 0)
    again = (await http.post("/v1/cache", json={"text": phrase, "language": "en"})).json()
    assert (again["stored"], again["cached"]) == (0, 4)
    before = await hits(http)
    for text in (phrase, f"{phrase} So.", f"So. {phrase} So.", f"So. {phrase}"):
        await speak(http, input=text, cache=True)
        now = await hits(http)
        assert now > before, text
        before = now


async def test_clearing_drops_all(http: httpx.AsyncClient) -> None:
    """And says how many, and that no other server has dropped its own: none shares them."""
    await speak(http)
    assert (await http.delete("/v1/cache")).json() == {"dropped": 2, "shared": False}
    shown = (await http.get("/v1/cache")).json()
    assert (shown["phrases"], shown["shared"]) == (0, False)


BAD_PHRASES: list[tuple[dict[str, Any], str]] = [
    ({}, "invalid_param"),
    ({"text": ""}, "invalid_param"),
    ({"text": 3}, "invalid_param"),
    ({"text": "a" * 1001}, "invalid_param"),
    ({"text": "Hi.", "colour": "red"}, "invalid_param"),
    ({"text": "Hi.", "voice": "nobody"}, "invalid_voice"),
    ({"text": "Hi.", "language": "xx"}, "invalid_language"),
]


async def test_a_bad_phrase_is_refused(http: httpx.AsyncClient) -> None:
    """With a code, and without a trace in the cache; nor is text without speech a phrase."""
    for body, code in BAD_PHRASES:
        response = await http.post("/v1/cache", json=body)
        assert response.status_code in (400, 404, 422), body
        assert response.json()["error"]["code"] == code, body
    answer = await http.post("/v1/cache", json={"text": "… \x00 🙂"})
    assert answer.json() == {"stored": 0, "cached": 0}
    assert (await http.get("/v1/cache")).json()["phrases"] == 0


async def test_a_server_without_a_cache_says_so(start_server: StartServer) -> None:
    """Each route names the setting."""
    plain = await start_server(cache_mb=0)
    async with httpx.AsyncClient(base_url=plain.url) as client:
        for method in ("GET", "DELETE"):
            response = await client.request(method, "/v1/cache")
            assert response.json()["error"]["code"] == "not_supported"
            assert "CACHE_MB" in response.json()["error"]["message"]
