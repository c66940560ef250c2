"""What a key permits, on every route and socket; and keys that change while the server runs."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute, APIWebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from testbed.papers import table_rows
from testbed.throttling import running_throttled
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.jobs.routes import FILES_PATH
from voiceagent_tts.plugins.keys.access import scope_of
from voiceagent_tts.plugins.keys.keys import KeyDocument, NewKey, Scope, make_key
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = {scope: make_key(scope, frozenset({scope}), Quota()) for scope in Scope}
NOWHERE = "/{path:path}"  # the sockets that are not there
LINKED = f"{FILES_PATH}/{{name}}"  # its links are signed
OPEN = {"/", "/docs", "/static", "/health", "/health/live", "/health/ready", LINKED}
"""The paths of routes that need no key; `/static` has files below it."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SOCKETS = ("/v1/tts/ws", "/v1/audio/speech/stream", "/tts/websocket")
ROUTES: list[tuple[str, str, Scope | None]] = [
    ("POST", "/v1/audio/speech", Scope.SPEAK),
    ("POST", "/tts/bytes", Scope.SPEAK),
    ("GET", "/v1/audio/voices", Scope.SPEAK),
    ("GET", "/v1/models", Scope.SPEAK),
    ("GET", "/v1/models/tts-1", Scope.SPEAK),
    ("GET", "/v1/cache", Scope.ADMIN),
    ("POST", "/v1/cache", Scope.ADMIN),
    ("DELETE", "/v1/cache", Scope.ADMIN),
    ("POST", "/v1/audio/voices", Scope.VOICES_WRITE),
    ("POST", "/v1/audio/voices/design", Scope.VOICES_WRITE),
    ("GET", "/v1/audio/voices/anna", Scope.VOICES_WRITE),
    ("DELETE", "/v1/audio/voices/anna", Scope.VOICES_WRITE),
    ("GET", "/metrics", Scope.ADMIN),
    ("GET", "/v1/usage", None),
    ("GET", "/openapi.json", None),
]


def write(path: Path, *keys: NewKey) -> None:
    path.write_text(KeyDocument(keys=tuple(each.key for each in keys)).dump())


def headers_of(key: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.secret}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scoped(tmp_path_factory: pytest.TempPathFactory):
    """A server with one key for each scope, in a file."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    write(path, *KEYS.values())
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(running(Settings(port=0, keys=str(path))))


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
async def test_a_route_needs_its_scope_and_no_other_will_do(
    scoped: RunningServer, method: str, path: str, needed: Scope | None
) -> None:
    """A key of another scope gets 403 and `forbidden` before the body is read."""
    async with httpx.AsyncClient(base_url=scoped.url) as http:
        for scope, key in KEYS.items():
            response = await http.request(method, path, headers=headers_of(key))
            if needed in (None, scope):
                assert response.status_code not in (401, 403), response.text
                continue
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (403, "forbidden")
            assert f"--scope {needed}" in error["message"]
        assert (await http.request(method, path)).status_code == 401


@pytest.mark.parametrize("path", SOCKETS)
async def test_a_socket_needs_the_scope_speak(scoped: RunningServer, path: str) -> None:
    url = f"ws{scoped.url.removeprefix('http')}{path}"
    for scope in (Scope.ADMIN, Scope.VOICES_WRITE):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=headers_of(KEYS[scope]))
        assert refused.value.response.status_code == 403
        assert b'"code":"forbidden"' in (refused.value.response.body or b"")
    async with connect(url, additional_headers=headers_of(KEYS[Scope.SPEAK])):
        pass


async def test_every_route_has_a_scope_in_the_documents(scoped: RunningServer) -> None:
    """docs/keys.md lists every route that needs a key, with the scope that the server checks."""
    documented: dict[str, str] = {
        route.strip(" `"): scope.strip("`")
        for scope, routes in table_rows("docs/keys.md", "scope | routes")
        for route in routes.split(",")
    }
    served: dict[str, str] = {}
    for route in scoped_routes(scoped):
        served[route] = str(scope_of(*route.split(" ")) or "any")
    assert documented == served


def scoped_routes(server: RunningServer) -> list[str]:
    """Method and path of every route that needs a key; sockets are opened with GET."""
    found = list[tuple[str, str]]()
    for route in routes_of(server):
        if isinstance(route, APIWebSocketRoute):
            found.append(("GET", route.path))
        elif isinstance(route, APIRoute):
            found += [(method, route.path_format) for method in route.methods - {"HEAD"}]
    return sorted({f"{method} {path}" for method, path in found if path not in {*OPEN, NOWHERE}})


async def test_every_path_asks_for_a_key(scoped: RunningServer) -> None:
    """Whatever the method, all that a plugin or the core serves answers 401 without one.

    So do those beside the open ones, as the job `files` is beside the signed links.
    """
    paths = {route.path for route in routes_of(scoped)} - {NOWHERE}
    assert paths > OPEN
    closed = {re.sub(r"\{.*?\}", "files", path) for path in paths - OPEN}
    async with httpx.AsyncClient(base_url=scoped.url) as http:
        for path in closed | {"/x", "/docsx", "/staticx", "/healthx"}:
            for method in METHODS:
                refused = await http.request(method, path)
                assert refused.status_code == 401, f"{method} {path}"
        for path in {*OPEN, "/docs/"}:
            assert (await http.get(path)).status_code != 401


async def test_every_socket_asks_for_a_key(scoped: RunningServer) -> None:
    """All refuse a wrong key, and no key: ElevenLabs' when the first message has none."""
    sockets = [
        f"ws{scoped.url.removeprefix('http')}{route.path.replace('{voice_id}', 'en')}"
        for route in routes_of(scoped)
        if isinstance(route, APIWebSocketRoute) and route.path != NOWHERE
    ]
    assert len(sockets) > len(SOCKETS)
    for url in sockets:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers={"X-API-Key": "wrong"})
        assert refused.value.response.status_code == 401
        if url.endswith("-input"):
            async with connect(url) as websocket:
                await websocket.send('{"text": "Hello. ", "flush": true}')
                assert json.loads(await websocket.recv())["code"] == 1008
                await websocket.wait_closed()
                assert websocket.close_code == 1008
            continue
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 401
    assert not scoped.state.sessions and not scoped.state.synthesizer.contexts_active


def routes_of(server: RunningServer) -> list[Any]:
    """All routes and sockets of a server."""
    app: Any = server.uvicorn_server.config.app.app
    return all_routes(app.routes)


def all_routes(routes: list[Any]) -> list[Any]:
    """Routes, and those of included routers, which newer versions of FastAPI keep apart."""
    flat: list[Any] = []
    for route in routes:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        flat += [route] if inner is None else all_routes(inner)
    return flat


async def test_a_plain_key_permits_everything(start_server_in_module) -> None:
    """`api_keys` is for small installations: one key for all."""
    server = await start_server_in_module(api_keys=("plain",))
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "plain"}) as http:
        for method, path, _ in ROUTES:
            assert (await http.request(method, path)).status_code not in (401, 403)


@pytest_asyncio.fixture(loop_scope="module")
async def start_server_in_module():
    """Start servers in the event loop of this module; all end with the test."""
    async with AsyncExitStack() as stack:

        async def start(throttle: dict[str, Any] | None = None, **settings: Any) -> RunningServer:
            server = running_throttled(Settings(port=0, **settings), throttle)
            return await stack.enter_async_context(server)

        yield start


async def test_keys_change_while_the_server_runs(start_server_in_module, tmp_path: Path) -> None:
    """A new key works without a restart; a revoked one closes its sockets, and no others."""
    path = tmp_path / "keys.json"
    kept, revoked, narrowed, added = [
        make_key(name, frozenset({Scope.SPEAK}), Quota())
        for name in ("kept", "revoked", "narrowed", "added")
    ]
    write(path, kept, revoked, narrowed)
    server = await start_server_in_module(keys=str(path))
    url, state = server.websocket_url, server.state
    with pytest.raises(InvalidStatus):
        await Wire.connect(url, additional_headers=headers_of(added))
    async with AsyncExitStack() as stack:
        wires = [
            await stack.enter_async_context(Wire.connected(url, additional_headers=headers_of(key)))
            for key in (kept, revoked, narrowed)
        ]
        for wire in wires:
            assert (await wire.say("Hello.")).done.reason == "complete"
        no_voice = narrowed.key.model_copy(update={"scopes": frozenset({Scope.ADMIN})})
        write(path, kept, NewKey(no_voice, narrowed.secret), added)
        await state.access.keys.reload()
        for wire in wires[1:]:
            with pytest.raises(ConnectionClosed) as closed:
                await wire.websocket.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert (await wires[0].say("Still here.")).done.reason == "complete"
    async with Wire.connected(url, additional_headers=headers_of(added)) as wire:
        assert (await wire.say("Hello.")).done.reason == "complete"
    for key in (revoked, narrowed):
        with pytest.raises(InvalidStatus):
            await Wire.connect(url, additional_headers=headers_of(key))


async def test_a_request_ends_with_its_key(start_server_in_module, tmp_path: Path) -> None:
    """What is spoken over HTTP for a revoked key ends, and the client notices; others go on."""
    path = tmp_path / "keys.json"
    kept, revoked = (make_key(name, frozenset({Scope.SPEAK}), Quota()) for name in "ab")
    write(path, kept, revoked)
    server = await start_server_in_module(keys=str(path))
    body = {"input": "A sentence that is spoken for long. " * 400, "response_format": "pcm"}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url))
        responses = [
            await stack.enter_async_context(
                http.stream("POST", "/v1/audio/speech", json=body, headers=headers_of(key))
            )
            for key in (kept, revoked)
        ]
        audio = [response.aiter_raw(4096) for response in responses]
        for each in audio:
            await anext(each)
        write(path, kept)
        await server.state.access.keys.reload()
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            async for _ in audio[1]:
                pass
        assert await anext(audio[0])


@pytest.mark.parametrize(("kept", "code"), [((), "unauthorized"), (("admin",), "forbidden")])
async def test_what_is_spoken_ends_with_the_error_of_a_new_request(
    start_server_in_module, tmp_path: Path, kept: tuple[str, ...], code: str
) -> None:
    """A key that was removed is unauthorized; one that lost the scope `speak` is forbidden."""
    path = tmp_path / "keys.json"
    key = make_key("a", frozenset({Scope.SPEAK}), Quota())
    write(path, key, other := make_key("b", frozenset({Scope.ADMIN}), Quota()))
    server = await start_server_in_module({"rtf": 1.0}, keys=str(path))
    changed = [key.key.model_copy(update={"scopes": frozenset(map(Scope, kept))})] if kept else []
    item = {"input": "A sentence that is spoken for long. " * 20}
    async with httpx.AsyncClient(base_url=server.url, headers=headers_of(key)) as http:
        batch = http.post("/v1/audio/speech/batch", json={"items": [item] * 3}, timeout=PATIENCE_S)
        speaking = asyncio.create_task(batch)
        await until(lambda: server.state.synthesizer.contexts_active == 3, "the texts are spoken")
        path.write_text(KeyDocument(keys=(other.key, *changed)).dump())
        await server.state.access.keys.reload()
        results = (await speaking).json()["results"]
    assert [each["error"]["code"] for each in results] == [code] * 3


async def test_an_empty_file_of_keys_lets_nothing_in(start_server_in_module, tmp_path) -> None:
    """When the last key is revoked, the server does not become an open one."""
    path = tmp_path / "keys.json"
    write(path)
    server = await start_server_in_module(keys=str(path))
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/v1/models")).status_code == 401
        assert (await http.get("/v1/models", headers={"X-API-Key": "x"})).status_code == 401
