"""What one client with a `speak` key can do to a server; each attack goes on until it is ended."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

CONTEXTS = 20
"""Contexts that the attacker's key may have open."""
_IDLE_SOCKETS = 2_000
_UPLOAD_BYTES = 30 << 20

Attack = Callable[[str, str], Awaitable[None]]
"""Receives the server's `http://` address and the key."""


@contextlib.asynccontextmanager
async def _socket(url: str, key: str) -> AsyncIterator[ClientConnection]:
    address = f"ws{url.removeprefix('http')}/v1/tts/ws"
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(address, additional_headers=headers, open_timeout=30) as socket:
        reading = asyncio.create_task(_read(socket))
        try:
            yield socket
        finally:
            reading.cancel()


async def _read(socket: ClientConnection) -> None:
    with contextlib.suppress(WebSocketException):
        async for _ in socket:
            pass


async def _send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}, ensure_ascii=False))


def texts(text: str, lexicon: Mapping[str, Any] | None = None, **options: Any) -> Attack:
    """Send a text with all contexts, cancel them after a while, and again."""

    async def attack(url: str, key: str) -> None:
        async with _socket(url, key) as socket:
            for turn in itertools.count():
                ids = [f"{turn}-{number}" for number in range(CONTEXTS)]
                for context_id in ids:
                    fields = {"context_id": context_id, "lexicon": lexicon or {}, **options}
                    await _send(socket, "context.open", **fields)
                    await _send(socket, "text", context_id=context_id, text=text)
                    await _send(socket, "end", context_id=context_id)
                await asyncio.sleep(2)
                for context_id in ids:
                    await _send(socket, "cancel", context_id=context_id)

    return attack


async def open_and_cancel(url: str, key: str) -> None:
    """Open contexts, have each take a row, and cancel it, as fast as the server reads."""
    async with _socket(url, key) as socket:
        for number in itertools.count():
            context_id = str(number)
            await _send(socket, "context.open", context_id=context_id, language="en")
            await _send(socket, "text", context_id=context_id, text="A row for me, please. And")
            await asyncio.sleep(0.002)
            await _send(socket, "cancel", context_id=context_id)


async def ended_texts(url: str, key: str) -> None:
    """End contexts with long texts, which the server keeps for `cut`."""
    async with _socket(url, key) as socket:
        for number in itertools.count():
            context_id = str(number)
            await _send(socket, "context.open", context_id=context_id, language="en")
            await _send(socket, "text", context_id=context_id, text="日本 " * 6_000)
            await _send(socket, "cancel", context_id=context_id)
            await asyncio.sleep(0.01)


async def idle_sockets(url: str, key: str) -> None:
    """Open sockets until the server has no more, and keep them."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(_IDLE_SOCKETS):
            with contextlib.suppress(WebSocketException, OSError, TimeoutError):
                await stack.enter_async_context(_socket(url, key))
        await asyncio.Event().wait()


async def _repeat(times: int, request: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> None:
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as http:

        async def always() -> None:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    await request(http)

        await asyncio.gather(*(always() for _ in range(times)))


def files(audio_format: str) -> Attack:
    """Have files made in a compressed format, several at the same time."""

    async def attack(url: str, key: str) -> None:
        body = {
            "input": "This is a sentence of a long text. " * 100,
            "response_format": audio_format,
        }
        headers = {"Authorization": f"Bearer {key}"}
        place = f"{url}/v1/audio/speech"
        await _repeat(4, lambda http: http.post(place, json=body, headers=headers))

    return attack


async def uploads(url: str, key: str) -> None:
    """Upload large files, forty at the same time."""
    data, headers = bytes(_UPLOAD_BYTES), {"Authorization": f"Bearer {key}"}
    place = f"{url}/v1/provenance/detect"
    await _repeat(40, lambda http: http.post(place, files={"file": data}, headers=headers))


_LONG = {"say": "b" * 200, "ipa": "a" * 200}
ATTACKS: dict[str, Attack] = {
    "long readings": texts("あ" * 249, {"あ": _LONG}, speed=0.25),
    "respelled words": texts("a " * 125, {"a": "bcd " * 49}, language="en"),
    "readings, 20 kB": texts("a " * 10_000, {"a": _LONG}, language="en"),
    "kana, 20 kB": texts("あ" * 14_000, {"あ" * length: "b" for length in range(1, 101)}),
    "short sentences": texts("漢。" * 10_000),
    "exclamations": texts("a! " * 6_666),
    "headings": texts("# a\n" * 5_000),
    "files, mp3": files("mp3"),
    "files, aac": files("aac"),
    "open and cancel": open_and_cancel,
    "idle sockets": idle_sockets,
    "ended texts": ended_texts,
    "uploads": uploads,
}


def run_attack(name: str, url: str, key: str) -> None:
    """Attack until the process is killed; a refusal does not end an attack."""
    while True:
        with contextlib.suppress(Exception):
            asyncio.run(_begin(ATTACKS[name], url, key))


async def _begin(attack: Attack, url: str, key: str) -> None:
    await attack(url, key)
