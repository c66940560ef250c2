"""Access control, over HTTP and before the WebSocket's upgrade."""

from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import hash_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY, HASHED_KEY = "key-in-the-clear", "key-that-was-hashed"
PATHS = ("/v1/tts/ws", "/v1/audio/speech/stream", "/tts/websocket")
REFUSED: dict[str, dict[str, Any]] = {
    "no key": {},
    "a wrong key": {"additional_headers": {"Authorization": "Bearer wrong"}},
    "an empty key": {"additional_headers": {"Authorization": "Bearer "}},
    "the hash of a key": {"additional_headers": {"X-API-Key": hash_key(KEY)}},
    "a wrong scheme": {"additional_headers": {"Authorization": f"Basic {KEY}"}},
    "a wrong key as subprotocol": {"subprotocols": ["tts.v1", "bearer.wrong"]},
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "bearer": {"additional_headers": {"Authorization": f"Bearer {KEY}"}},
    "bearer in lower case": {"additional_headers": {"Authorization": f"bearer {KEY}"}},
    "X-API-Key": {"additional_headers": {"X-API-Key": KEY}},
    "Baseten's scheme": {"additional_headers": {"Authorization": f"Api-Key {KEY}"}},
    "a key kept as its hash": {"additional_headers": {"X-API-Key": HASHED_KEY}},
    "subprotocol": {"subprotocols": ["tts.v1", f"bearer.{KEY}"]},
}
FOREIGN_ORIGINS = ["https://evil.example", "null", "http://[", "http://127.0.0.1:1"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed_server():
    """A server with two keys and one allowed origin."""
    settings = Settings(
        port=0, api_keys=(KEY, hash_key(HASHED_KEY)), allowed_origins=("https://app.example",)
    )
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(running(settings))


async def test_an_unknown_path_is_not_a_refused_key(keyed_server: RunningServer) -> None:
    """A WebSocket to a path that does not exist gets 404, with or without a key."""
    url = keyed_server.websocket_url.replace("/v1/tts/ws", "/v2/tts")
    for options in (REFUSED["no key"], ACCEPTED["bearer"]):
        with pytest.raises(InvalidStatus) as refused:
            await Wire.connect(url, **options)
        assert refused.value.response.status_code == 404
        assert b'"code":"not_found"' in (refused.value.response.body or b"")


@pytest.mark.parametrize("name", REFUSED)
async def test_the_socket_is_refused_before_the_upgrade(
    keyed_server: RunningServer, name: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await Wire.connect(keyed_server.websocket_url, **REFUSED[name])
    assert refused.value.response.status_code == 401
    assert b'"code":"unauthorized"' in (refused.value.response.body or b"")
    assert not keyed_server.state.sessions


@pytest.mark.parametrize("path", PATHS)
async def test_every_door_is_guarded(keyed_server: RunningServer, path: str) -> None:
    url = f"ws{keyed_server.url.removeprefix('http')}{path}"
    foreign = {"Origin": FOREIGN_ORIGINS[0], "X-API-Key": KEY}
    for headers, status in (({}, 401), (foreign, 403)):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=headers)
        assert refused.value.response.status_code == status
    async with connect(url, additional_headers={"X-API-Key": KEY}):
        pass


async def test_only_cartesias_clients_send_their_key_in_the_address(
    keyed_server: RunningServer,
) -> None:
    """Cartesia's browser clients can only send the key in the URL; other endpoints refuse that."""
    base = f"ws{keyed_server.url.removeprefix('http')}"
    async with connect(f"{base}/tts/websocket?api_key={KEY}&cartesia_version=2025-04-16"):
        pass
    for url in (
        f"{base}/tts/websocket?api_key=wrong",
        *(f"{base}{path}?api_key={KEY}" for path in PATHS[:2]),
    ):
        with pytest.raises(InvalidStatus):
            await connect(url)


@pytest.mark.parametrize("name", ACCEPTED)
async def test_the_socket_takes_every_kind_of_key(keyed_server: RunningServer, name: str) -> None:
    """A key is accepted as bearer token, header or subprotocol, and is never sent back."""
    async with Wire.connected(keyed_server.websocket_url, **ACCEPTED[name]) as wire:
        is_offered = "subprotocols" in ACCEPTED[name]
        assert wire.websocket.subprotocol == ("tts.v1" if is_offered else None)
        assert (await wire.say("Hello.")).done.reason == "complete"


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/audio/voices", "/v1/models", "/metrics", "/openapi.json", "/nowhere"),
        *("//v1/models", "/healthy"),  # the pages and `/health` want none
    ],
)
async def test_http_wants_a_key(keyed_server: RunningServer, path: str) -> None:
    url = f"{keyed_server.url}{path}"
    async with httpx.AsyncClient() as http:
        refused = await http.get(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert (await http.get(url, headers={"X-API-Key": KEY})).status_code in (200, 404)


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js"])
async def test_the_pages_want_none(keyed_server: RunningServer, path: str) -> None:
    """The pages load without a key and then ask for one; no other site may embed them."""
    async with httpx.AsyncClient(base_url=keyed_server.url) as http:
        page = await http.get(path)
        assert page.status_code == 200
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self'") and "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "//v1/models"]
)
async def test_the_pages_open_nothing_else(keyed_server: RunningServer, path: str) -> None:
    """Only the files of the pages are served without a key."""
    async with httpx.AsyncClient(base_url=keyed_server.url) as http:
        assert (await http.get(f"{keyed_server.url}{path}")).status_code in (401, 404)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_foreign_origins_are_refused(keyed_server: RunningServer, origin: str) -> None:
    """A page of a foreign origin gets 403 over WebSocket and HTTP, even with a key."""
    headers = {"Origin": origin, "X-API-Key": KEY}
    with pytest.raises(InvalidStatus) as refused:
        await Wire.connect(keyed_server.websocket_url, additional_headers=headers)
    assert refused.value.response.status_code == 403
    async with httpx.AsyncClient(base_url=keyed_server.url, headers=headers) as http:
        response = await http.get("/v1/models")
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")


async def test_own_and_allowed_origins_may_connect(keyed_server: RunningServer) -> None:
    """The server's own pages and those of `allowed_origins` may connect, with a key."""
    for origin in (keyed_server.url, "https://app.example"):
        headers = {"Origin": origin, "X-API-Key": KEY}
        async with Wire.connected(keyed_server.websocket_url, additional_headers=headers) as wire:
            assert (await wire.say("Hello.")).done.reason == "complete"
        with pytest.raises(InvalidStatus):
            await Wire.connect(keyed_server.websocket_url, additional_headers={"Origin": origin})


async def test_an_open_server_refuses_foreign_pages(shared_server: RunningServer) -> None:
    """A server without keys accepts local programs but refuses web pages of foreign origins."""
    headers = {"Origin": "https://evil.example"}
    with pytest.raises(InvalidStatus) as refused:
        await Wire.connect(shared_server.websocket_url, additional_headers=headers)
    assert refused.value.response.status_code == 403


async def test_an_open_server_believes_in_no_foreign_name(shared_server: RunningServer) -> None:
    """A foreign host name that resolves to this machine (DNS rebinding) is refused."""
    headers = {"Origin": "http://rebound.example:8765", "Host": "rebound.example:8765"}
    async with httpx.AsyncClient(base_url=shared_server.url, headers=headers) as http:
        assert (await http.get("/v1/models")).status_code == 403
    async with httpx.AsyncClient(base_url=shared_server.url) as http:
        own = await http.get("/v1/models", headers={"Origin": shared_server.url})
        assert own.status_code == 200


async def test_allowed_pages_may_fetch(keyed_server: RunningServer) -> None:
    """CORS allows pages of allowed origins to send a key, and no other page."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    async with httpx.AsyncClient(base_url=keyed_server.url) as http:
        allowed = await http.options(
            "/v1/audio/speech", headers={"Origin": "https://app.example", **asked}
        )
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-api-key" in allowed.headers["access-control-allow-headers"].lower()
        refused = await http.options(
            "/v1/audio/speech", headers={"Origin": "https://evil.example", **asked}
        )
        assert "access-control-allow-origin" not in refused.headers
