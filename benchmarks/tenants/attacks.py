"""What one client with a `speak` key can do to a server; each attack goes on until it is ended.

An attack whose messages the server refuses as unknown attacks nothing, so each is named with the
answers that prove it to be one.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from testbed.raw_websocket import CONTINUATION, PING, TEXT, frame
from voiceagent_tts.offspring import Following

CONTEXTS = 20
"""Contexts that the attacker's key may have open."""
_IDLE_SOCKETS = 2_000
_SILENT_SOCKETS = 500
_UNFINISHED_SOCKETS = 300
_UNREAD_SOCKETS = 40
_UPLOAD_BYTES = 30 << 20
_BOMB_BYTES = 256 << 20
_SPEECH, _DETECT = "/v1/audio/speech", "/v1/provenance/detect"
_FORM = (
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a" * 1_000_000 + b"\r\n--b--\r\n"
)
_NESTED = '{"type": "text", "context_id": "a", "text": ' + "[" * 10_000 + "]" * 10_000 + "}"

Act = Callable[[str, str], Awaitable[None]]
"""What an attacker does; receives the server's `http://` address and the key."""
_answers: ContextVar[Counter[str]] = ContextVar("_answers")
"""Kinds of answers that the attack of this task got."""


def _note(kind: str) -> None:
    _answers.get()[kind] += 1


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack, and how it is known to be one.

    Attributes:
        act: what the attacker does.
        proofs: kinds of answers, of which it must get one: `audio` or the type of a message, with
            the code of an error; the status of an HTTP answer; `connected` and `closed` for those
            that wait for no answer.
    """

    act: Act
    proofs: tuple[str, ...] = ("audio",)

    async def begin(self, url: str, key: str, answers: Counter[str]) -> None:
        """Attack until cancelled; count the answers."""
        _answers.set(answers)
        await self.act(url, key)

    def is_proved_by(self, answers: Counter[str]) -> bool:
        """Whether the server has answered as it does to this attack."""
        return any(answers[proof] for proof in self.proofs)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _connect(url: str, key: str, path: str = "/v1/tts/ws", **options: Any) -> connect:
    address = f"ws{url.removeprefix('http')}{path}"
    return connect(address, additional_headers=_bearer(key), open_timeout=30, **options)


@contextlib.asynccontextmanager
async def _socket(url: str, key: str) -> AsyncIterator[ClientConnection]:
    """Open a socket whose answers are read."""
    async with _connect(url, key) as socket:
        _note("connected")
        reading = asyncio.create_task(_read(socket))
        try:
            yield socket
        finally:
            reading.cancel()


async def _read(socket: ClientConnection) -> None:
    with contextlib.suppress(WebSocketException):
        async for message in socket:
            _note(_kind_of(message))


def _kind_of(message: str | bytes) -> str:
    if isinstance(message, bytes):
        return "audio"
    fields = json.loads(message)
    return f"error {fields['code']}" if fields["type"] == "error" else fields["type"]


async def _send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}, ensure_ascii=False))
    await asyncio.sleep(0)  # the answers are read


async def _speak(socket: ClientConnection, context_id: str, text: str, **options: Any) -> None:
    await _send(socket, "context.open", context_id=context_id, **options)
    await _send(socket, "text", context_id=context_id, text=text)
    await _send(socket, "end", context_id=context_id)


def texts(text: str, lexicon: Mapping[str, Any] | None = None, **options: Any) -> Act:
    """Send a text with all contexts, cancel them after a while, and again."""

    async def attack(url: str, key: str) -> None:
        async with _socket(url, key) as socket:
            for turn in itertools.count():
                ids = [f"{turn}-{number}" for number in range(CONTEXTS)]
                for context_id in ids:
                    await _speak(socket, context_id, text, lexicon=lexicon or {}, **options)
                await asyncio.sleep(2)
                for context_id in ids:
                    await _send(socket, "cancel", context_id=context_id)

    return attack


def cancelled(fields_of: Callable[[int], dict[str, Any]], text: str, wait_s: float = 0.002) -> Act:
    """Open contexts, send each a text, and cancel it soon, as fast as the server reads."""

    async def attack(url: str, key: str) -> None:
        async with _socket(url, key) as socket:
            for number in itertools.count():
                context_id = str(number)
                await _send(socket, "context.open", context_id=context_id, **fields_of(number))
                said = text.replace("{}", context_id)
                await _send(socket, "text", context_id=context_id, text=said)
                await asyncio.sleep(wait_s)
                await _send(socket, "cancel", context_id=context_id)

    return attack


_ODD: tuple[dict[str, Any], ...] = (
    *({"voice": name * 60} for name in ("a", "ß", "İ", "😀", "../")),
    *({"language": name} for name in ("xx", "zh-" + "x" * 50)),
    *({"lexicon": {"a": {"ipa": "?" * 90}}}, {"lexicon": {"a" * 99: 5}}, {"speed": 1e308}),
    *({"metadata": {str(n): ["x" * 99] * 9 for n in range(99)}}, {"audio": {"encoding": "x"}}),
)
"""Options with which no context can be opened: unknown voices and languages, and wrong fields."""


def _english(_: int) -> dict[str, Any]:
    return {"language": "en"}


def _own_lexicon(number: int) -> dict[str, Any]:
    lexicon = {f"w{number}x{entry}": f"said {entry}" for entry in range(480)}
    return {"lexicon": lexicon, "language": "en"}


async def idle_sockets(url: str, key: str) -> None:
    """Open sockets until the server has no more, and keep them."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(_IDLE_SOCKETS):
            with contextlib.suppress(WebSocketException, OSError, TimeoutError):
                await stack.enter_async_context(_socket(url, key))
        await asyncio.Event().wait()


async def _note_status(response: httpx.Response) -> None:
    _note(str(response.status_code))


def requests(at_once: int, *kinds: Mapping[str, Any]) -> Act:
    """Send HTTP requests in turn without end, so many at the same time; arguments as httpx's."""

    async def attack(url: str, key: str) -> None:
        options: dict[str, Any] = {
            "base_url": url,
            "headers": _bearer(key),
            "timeout": 60,
            "limits": httpx.Limits(max_connections=None),
            "event_hooks": {"response": [_note_status]},  # called before the body is read
        }
        waiting = itertools.cycle(kinds)
        async with httpx.AsyncClient(**options) as http:

            async def always() -> None:
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        await http.request(**next(waiting))

            await asyncio.gather(*(always() for _ in range(at_once)))

    return attack


def _post(path: str, **content: Any) -> dict[str, Any]:
    return {"method": "POST", "url": path, **content}


def _file_in(audio_format: str) -> dict[str, Any]:
    text = "This is a sentence of a long text. " * 100
    return _post(_SPEECH, json={"input": text, "response_format": audio_format})


def _form_in(codec: str) -> dict[str, Any]:
    """A form whose encoding takes long to decode."""
    content_type = f"multipart/form-data; boundary=b; charset={codec}"
    return _post(_DETECT, content=_FORM, headers={"Content-Type": content_type})


async def nested(url: str, key: str) -> None:
    """Send JSON that is nested ten thousand times, to sockets and routes."""
    posts = requests(
        4, _post(_SPEECH, content=_NESTED, headers={"Content-Type": "application/json"})
    )

    async def send() -> None:
        async with _socket(url, key) as socket:
            while True:
                await socket.send(_NESTED)

    await asyncio.gather(posts(url, key), send())


# Bytes on connections.


def _handshake(key: str, extensions: str = "") -> bytes:
    return (
        f"GET /v1/tts/ws HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n{extensions}"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


async def _raw(url: str, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    _note("connected")
    writer.write(data)
    await writer.drain()
    return reader, writer


async def _note_answer(reader: asyncio.StreamReader) -> None:
    _note((await reader.readuntil(b"\r\n\r\n"))[9:12].decode())


async def _hold(url: str, count: int, first: Sequence[bytes], then: Sequence[bytes] = ()) -> None:
    """Open connections, send to each what is next, and keep them.

    `then` is sent once `first` is answered; what the server answers to it is not read.
    """
    opened: list[asyncio.StreamWriter] = []
    for number in range(count):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await _raw(url, first[number % len(first)])
            opened.append(writer)
            if then:
                await _note_answer(reader)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(then[number % len(then)])
    await asyncio.sleep(20)


async def unfinished_frames(url: str, key: str) -> None:
    """Send large messages without their last bytes, whole and in parts, on many sockets."""
    whole = frame(TEXT, b"a" * 1_000_000)[:-1]
    part = frame(CONTINUATION, b"a" * 1_000, fin=False)
    parts = frame(TEXT, fin=False) + part * 1_000
    await _hold(url, _UNFINISHED_SOCKETS, [_handshake(key)], [whole, parts])


async def unread_answers(url: str, key: str) -> None:
    """Ask on many sockets what of a long text was heard, and read no answer."""
    turn = [
        {"type": "context.open", "context_id": "a", "language": "en"},
        {"type": "text", "context_id": "a", "text": "日" * 15_000},
        {"type": "cancel", "context_id": "a"},
    ]
    cuts = [{"type": "cut", "context_id": "a", "played_ms": number} for number in range(400)]
    sent = [json.dumps(message, ensure_ascii=False) for message in (*turn, *cuts)]
    async with _socket(url, key) as socket:  # whose answers prove that they are made
        for message in sent[: len(turn) + 1]:
            await socket.send(message)
        while not _answers.get()["cut"]:
            await asyncio.sleep(0.01)
    frames = b"".join(frame(TEXT, message.encode()) for message in sent)
    await _hold(url, _UNREAD_SOCKETS, [_handshake(key)], [frames])


async def silent_connections(url: str, key: str) -> None:
    """Open connections, and send nothing, or half of a request."""
    halves = (b"", b"GET /v1/tts/ws HTTP/1.1\r\n", b"POST /v1/audio/speech HTTP/1.1\r\nHost: ")
    await _hold(url, _SILENT_SOCKETS, halves)


async def tiny_texts(url: str, key: str) -> None:
    """Send texts of one character, ten thousand to a context, in twenty contexts at once."""
    async with _socket(url, key) as socket:
        for turn in itertools.count():
            ids = [f"{turn}-{number}" for number in range(CONTEXTS)]
            for context_id in ids:
                await _send(socket, "context.open", context_id=context_id, language="en")
            for letter in itertools.islice(itertools.cycle("a b. c! "), 10_000):
                for context_id in ids:
                    await _send(socket, "text", context_id=context_id, text=letter)
            for context_id in ids:
                await _send(socket, "cancel", context_id=context_id)


async def cuts(url: str, key: str) -> None:
    """Ask again and again what of a long text was heard."""
    async with _socket(url, key) as socket:
        await _speak(socket, "a", "日本 a. " * 3_000, language="en", max_lead_s=0)
        while not _answers.get()["audio"]:
            await asyncio.sleep(0.01)
        for number in itertools.count():
            await _send(socket, "cut", context_id="a", played_ms=number % 100_000)


async def no_reader(url: str, key: str) -> None:
    """Have audio made as fast as it can be, on sockets that are never read."""
    async with contextlib.AsyncExitStack() as stack:
        for number in itertools.count():
            with contextlib.suppress(WebSocketException, OSError, TimeoutError):
                socket = await stack.enter_async_context(_connect(url, key, max_queue=1))
                _note("connected")
                text = "This is long. " * 1_000
                await _speak(socket, str(number), text, max_lead_s=0, language="en")
            await asyncio.sleep(0.05)


async def pings(url: str, key: str) -> None:
    """Ping a socket in both ways, and read no answer."""
    ping = frame(PING, bytes(125))

    async def ping_frames() -> None:
        _, writer = await _raw(url, _handshake(key))
        while True:
            writer.write(ping * 100)
            await writer.drain()

    async def ping_messages() -> None:
        async with _connect(url, key, max_queue=1) as socket:
            _note(_kind_of(await socket.recv()))
            for number in itertools.count():
                await socket.send(json.dumps({"type": "ping", "t": number}))

    await asyncio.gather(ping_frames(), ping_messages())


async def long_headers(url: str, key: str) -> None:
    """Send headers and addresses of 15 kB, with and without an end; longer ones are not read."""
    filler = "x" * 15_000
    requests = (
        f"GET /v1/audio/voices?{filler} HTTP/1.1\r\nHost: a\r\n\r\n",
        f"GET /v1/audio/voices HTTP/1.1\r\nAuthorization: Bearer {key}\r\nX: {filler}\r\n\r\n",
        "GET / HTTP/1.1\r\n" + "".join(f"X-{number}: y\r\n" for number in range(5_000)),
    )
    for number in itertools.count():
        with contextlib.suppress(OSError):
            reader, writer = await _raw(url, requests[number % len(requests)].encode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    _note((await reader.read(100))[9:12].decode())
            writer.close()


def endless(head: bytes, part: bytes) -> Act:
    """Send headers that do not end, on twenty connections at once; no key is needed."""

    async def attack(url: str, key: str) -> None:
        async def send() -> None:
            while True:
                _, writer = await _raw(url, head)
                with contextlib.suppress(ConnectionError):
                    while not writer.is_closing():
                        writer.write(part * 1_000)
                        await writer.drain()
                _note("closed")

        await asyncio.gather(*(send() for _ in range(20)))

    return attack


_BODY = (
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\n{\r\n0\r\nX: "
)
"""A request whose trailers begin."""


async def closing_sockets(url: str, key: str) -> None:
    """End many contexts on one socket, and close hundreds of others at once, again and again."""
    async with _socket(url, key) as socket:
        for number in range(4_000):
            await _send(socket, "context.open", context_id=str(number))
            await _send(socket, "cancel", context_id=str(number))
        while True:
            opening = [_raw(url, _handshake(key)) for _ in range(400)]
            opened = await asyncio.gather(*opening, return_exceptions=True)
            for each in opened:
                if not isinstance(each, BaseException):
                    each[1].transport.abort()
            await asyncio.sleep(0.5)


async def broken_off(url: str, key: str) -> None:
    """Ask for more contexts than the key may have, and break off while they are opened."""

    async def ask() -> None:
        async with _connect(url, key) as socket:
            for number in range(2 * CONTEXTS):
                await socket.send(json.dumps({"type": "context.open", "context_id": str(number)}))
            _note(_kind_of(await socket.recv()))
            socket.transport.abort()

    while True:
        await asyncio.gather(*(ask() for _ in range(20)), return_exceptions=True)


async def empty_utterances(url: str, key: str) -> None:
    """End utterances of vLLM-Omni's dialect behind one that is being spoken."""
    text = {"type": "input.text", "text": "This is a long text. " * 900}
    async with _connect(url, key, "/v1/audio/speech/stream") as socket:
        reading = asyncio.create_task(_read(socket))
        for message in ({"type": "session.config"}, text):
            await socket.send(json.dumps(message))
        while not reading.done():
            await _send(socket, "input.done")


async def pipelined_requests(url: str, key: str) -> None:
    """Send requests without waiting for answers, and read or do not read them; needs no key."""
    requests = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000

    async def send(is_reading: bool) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await _raw(url, requests)
                while is_reading and (answers := await reader.read(1 << 16)):
                    _note(answers[9:12].decode())
                    writer.write(requests)
                await writer.drain()
                writer.close()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(send(number % 2 == 0) for number in range(8)))


async def dripping_uploads(url: str, key: str) -> None:
    """Begin large uploads, and send a byte of each in every second."""
    head = (
        f"POST /v1/provenance/detect HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 20000000\r\n\r\n--b"
    )
    opened: list[asyncio.StreamWriter] = []
    while True:
        with contextlib.suppress(OSError):
            opened += [(await _raw(url, head.encode()))[1] for _ in range(50)]
        for writer in opened:
            writer.write(b"\r")
        await asyncio.sleep(1)


async def bombs(url: str, key: str) -> None:
    """Ask for compression, and send messages of 256 kB that inflate to 256 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(1 << 20)
    data = b"".join(packer.compress(zeros) for _ in range(_BOMB_BYTES >> 20))
    data += packer.flush(zlib.Z_SYNC_FLUSH).removesuffix(b"\0\0\xff\xff")
    request = _handshake(key, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
    bomb = frame(TEXT, data, rsv=4)
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await _raw(url, request)
            with contextlib.suppress(asyncio.IncompleteReadError):
                await _note_answer(reader)
                writer.write(bomb)
                await writer.drain()
                await reader.read(1_000)
            writer.close()


async def random_bytes(url: str, key: str) -> None:
    """Send what is no HTTP, no text and no JSON."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await _raw(url, os.urandom(50_000))
            writer.close()
        with contextlib.suppress(WebSocketException, OSError, TimeoutError):
            async with _socket(url, key) as socket:
                for _ in range(100):
                    await socket.send(os.urandom(5_000))
                    await asyncio.sleep(0)  # the answers are read


_CODECS = ("punycode", "idna", "utf-7", "unicode_escape")
_LISTS = (
    {"method": "GET", "url": "/v1/audio/voices"},
    *(_post(_SPEECH, json={"input": "Hello.", "voice": name * 64}) for name in "abcdefghij"),
    {"method": "GET", "url": "/metrics"},
)
"""The voices, voices that are none, and metrics, which a key may not see."""
_ITEM = {
    "input": "This is a sentence of a long text. " * 8, "response_format": "wav", "language": "en",
}  # fmt: skip
_BATCH = _post(f"{_SPEECH}/batch", json={"items": [_ITEM] * 64})
"""64 files, which come as one answer."""
_LONG = {"say": "b" * 200, "ipa": "a" * 200}
ATTACKS: dict[str, Attack] = {
    "long readings": Attack(
        texts("あ" * 249, {"あ": _LONG}, speed=0.25), ("audio", "error text_too_long")
    ),
    "respelled words": Attack(texts("a " * 125, {"a": "bcd " * 49}, language="en")),
    "readings, 20 kB": Attack(texts("a " * 10_000, {"a": _LONG}, language="en")),
    "kana, 20 kB": Attack(texts("あ" * 14_000, {"あ" * length: "b" for length in range(1, 101)})),
    "short sentences": Attack(texts("漢。" * 10_000)),
    "exclamations": Attack(texts("a! " * 6_666)),
    "headings": Attack(texts("# a\n" * 5_000)),
    "files, mp3": Attack(requests(4, _file_in("mp3")), ("200",)),
    "files, aac": Attack(requests(4, _file_in("aac")), ("200",)),
    "open and cancel": Attack(cancelled(_english, "A row for me, please. And"), ("done",)),
    "idle sockets": Attack(idle_sockets, ("ready",)),
    # Texts that the server keeps for `cut`.
    "ended texts": Attack(cancelled(_english, "日本 " * 6_000, wait_s=0.01), ("done",)),
    "uploads": Attack(
        requests(40, _post(_DETECT, files={"file": bytes(_UPLOAD_BYTES)})), ("200", "429")
    ),
    "tiny texts": Attack(tiny_texts),
    "odd options": Attack(
        cancelled(lambda number: _ODD[number % len(_ODD)], "Is it open?", wait_s=0),
        ("error invalid_voice", "error invalid_param"),
    ),
    "cuts": Attack(cuts, ("cut",)),
    "lexicons": Attack(cancelled(_own_lexicon, "w{}x7 and more. " * 99), ("done",)),
    "no reader": Attack(no_reader, ("connected",)),
    "pings": Attack(pings, ("ready",)),
    "unfinished frames": Attack(unfinished_frames, ("101",)),
    "unread answers": Attack(unread_answers, ("cut",)),
    "nested JSON": Attack(nested, ("error invalid_json",)),
    "long headers": Attack(long_headers, ("200", "400", "401")),
    "endless headers": Attack(endless(b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: b\r\n"), ("closed",)),
    "endless trailers": Attack(endless(_BODY, b"X: b\r\n"), ("closed",)),
    "one endless trailer": Attack(endless(_BODY, b"x"), ("closed",)),
    "encoded forms": Attack(requests(4, *map(_form_in, _CODECS)), ("400",)),
    "closing sockets": Attack(closing_sockets, ("done",)),
    "broken off": Attack(broken_off, ("ready",)),
    "empty utterances": Attack(empty_utterances, ("error too_many_contexts",)),
    "pipelined requests": Attack(pipelined_requests, ("200",)),
    "silent connections": Attack(silent_connections, ("connected",)),
    "dripping uploads": Attack(dripping_uploads, ("connected",)),
    "compression bombs": Attack(bombs, ("101",)),
    "lists": Attack(requests(8, *_LISTS), ("200",)),
    "batches": Attack(requests(4, _BATCH), ("200",)),
    "random bytes": Attack(random_bytes, ("error invalid_message",)),
}


def run_attack(name: str, url: str, key: str, parent_pid: int, begun: Event, proved: Event) -> None:
    """Attack until the process or its parent ends; a refusal does not end an attack.

    Args:
        name: name of the attack.
        url: the server's `http://` address.
        key: the attacker's key.
        parent_pid: the process that started this one.
        begun: set when the attack begins.
        proved: set when the server has answered as it does to this attack.
    """
    Following(parent_pid, signal.SIGKILL)()
    begun.set()
    while True:
        with contextlib.suppress(Exception):
            asyncio.run(_attack(ATTACKS[name], url, key, proved))


async def _attack(attack: Attack, url: str, key: str, proved: Event) -> None:
    answers: Counter[str] = Counter()
    attacking = asyncio.create_task(attack.begin(url, key, answers))
    while not attack.is_proved_by(answers) and not attacking.done():
        await asyncio.sleep(0.05)
    if attack.is_proved_by(answers):
        proved.set()
    await attacking
