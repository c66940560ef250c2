"""Limits on sockets and over HTTP: how they are refused, who counts as one client, and usage."""

import asyncio
import asyncio.constants
import json
import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from testbed.raw_websocket import TEXT, frame, raw_websocket
from testbed.servers import StartServer, metric_value, silent
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.access.keys import KeyDocument, Scope, make_key
from voiceagent_tts.plugins.usage.book import UsageBook
from voiceagent_tts.protocol.messages import ContextOpened, DoneMessage, ErrorMessage
from voiceagent_tts.server import app, connections
from voiceagent_tts.server.connections import RequestProtocol
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.server.websocket import MAX_REFUSALS
from voiceagent_tts.settings.access import Quota, hash_key

KEY = {"additional_headers": {"X-API-Key": "key"}}
SPEECH = {"input": "Hello.", "response_format": "pcm", "voice": "en"}


async def refusal_of(wire: Wire, **options: Any) -> ErrorMessage:
    """Open a context that is refused; its `done` follows the error."""
    refused = await wire.open(language="en", **options)
    error = await wire.until(ErrorMessage, refused)
    assert (await wire.until(DoneMessage, refused)).reason == "error"
    return error


async def test_a_context_over_the_limit_is_refused_and_the_socket_stays(
    start_server: StartServer,
) -> None:
    """The error says `rate_limited`, 429 and when to retry; a context that ends makes room."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=1))
    async with (
        Wire.connected(server.websocket_url, **KEY) as wire,
        Wire.connected(server.websocket_url, **KEY) as other,
    ):
        held = await wire.open(language="en")
        await wire.until(ContextOpened, held)
        error = await refusal_of(other)
        assert (error.code, error.status, error.retryable) == ("rate_limited", 429, True)
        assert error.retry_after_ms == 1000
        await wire.cancel(held)
        await wire.until(DoneMessage, held)
        assert (await other.say("Now there is room.")).done.reason == "complete"
    assert metric_value(server, "tts_errors_total", code="rate_limited") == 1


async def test_text_over_the_limit_is_dropped_and_the_context_stays(
    start_server: StartServer,
) -> None:
    """What was accepted is spoken; the context ends as usual."""
    server = await start_server(api_keys=("key",), key_limits=Quota(chars_per_minute=60))
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        context = await wire.open(language="en", max_lead_s=0)
        await wire.text(context, "These are forty characters and a few more. ")
        await wire.send_raw(
            {"type": "text", "context_id": context.record.context_id, "text": "No room. " * 3}
        )
        error = await wire.until(ErrorMessage, context)
        assert error.code == "rate_limited" and (error.retry_after_ms or 0) > 50_000
        await wire.end(context)
        done = await wire.until(DoneMessage, context)
        assert (done.reason, done.chars) == ("complete", 43)


async def test_what_a_lexicon_says_is_charged(start_server: StartServer) -> None:
    """A word of one letter that is said as 15 counts as 15, in usage and against the limit."""
    server = await start_server(api_keys=("key",), key_limits=Quota(chars_per_minute=60))
    lexicon = {"a": "bcd bcd bcd bcd"}
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        context = await wire.open(language="en", lexicon=lexicon)
        await wire.text(context, "a a.")
        await wire.end(context)
        assert (await wire.until(DoneMessage, context)).chars == 4
        (book,) = server.state.opener.observers
        assert isinstance(book, UsageBook)
        (day,) = (await book.read(1)).values()
        (used,) = day.values()
        assert used.chars == len("a a.") + 2 * 14
        context = await wire.open(language="en", lexicon=lexicon)
        await wire.text(context, "a a a.")
        await wire.end(context)
        assert (await wire.until(ErrorMessage, context)).code == "rate_limited"
        assert (await wire.until(DoneMessage, context)).reason == "error"


SAID = {"a": "bcd bcd bcd bcd"}
ALIAS = f'<sub alias="{"bcd " * 4}">a</sub>.'
PHONEME = '<phoneme alphabet="ipa" ph="həˈləʊhəˈləʊ">a</phoneme>.'
WORTH = {
    "a a.": 4 + 2 * 14,
    ALIAS: len(ALIAS),
    PHONEME: len(PHONEME),
    f"{ALIAS} a.": len(ALIAS) + 3 + 14,
}
"""Texts, and what they are charged: what markup says is written in it, tags and all."""


@pytest.mark.parametrize("text", WORTH)
async def test_what_is_said_is_charged_over_http(text: str, start_server: StartServer) -> None:
    """As by a socket."""
    server = await start_server(api_keys=("key",))
    body = {**SPEECH, "input": text, "markup": True, "lexicon": SAID, "language": "en"}
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http:
        answer = await http.post("/v1/audio/speech", json=body)
    assert answer.status_code == 200, answer.text
    (book,) = server.state.opener.observers
    assert isinstance(book, UsageBook)
    (day,) = (await book.read(1)).values()
    assert [used.chars for used in day.values()] == [WORTH[text]]


async def test_a_client_that_ignores_its_limit_is_closed_with_4029(
    start_server: StartServer,
) -> None:
    """32 refusals in a row close the socket; one accepted message starts the count anew."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=1))
    async with (
        Wire.connected(server.websocket_url, **KEY) as wire,
        Wire.connected(server.websocket_url, **KEY) as stubborn,
    ):
        for _ in range(2):
            held = await wire.open(language="en")
            await wire.until(ContextOpened, held)
            for _ in range(MAX_REFUSALS - 1):
                await refusal_of(stubborn)
            await wire.cancel(held)
            await wire.until(DoneMessage, held)
            assert (await stubborn.say("Hello.")).done.reason == "complete"
        await wire.until(ContextOpened, await wire.open(language="en"))
        with pytest.raises(ConnectionClosed) as closed:
            for number in range(MAX_REFUSALS + 1):
                await stubborn.send_raw({"type": "context.open", "context_id": f"again-{number}"})
            while True:
                await stubborn.websocket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4029


@pytest.mark.parametrize(
    ("path", "messages"),
    [
        (
            "/v1/audio/speech/stream",
            [
                {"type": "session.config", "voice": "en"},
                {"type": "input.text", "text": "Hello."},
                {"type": "input.done"},
            ],
        ),
        (
            "/tts/websocket",
            [
                {
                    "context_id": "one", "transcript": "Hello.", "continue": False,
                    "model_id": "sonic-3", "voice": {"mode": "id", "id": "en"},
                    "output_format": {
                        "container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000,
                    },
                }
            ],
        ),
    ],
)  # fmt: skip
async def test_other_dialects_have_the_same_limits(
    start_server: StartServer, path: str, messages: list[dict[str, Any]]
) -> None:
    """Each dialect sends the error in its own form, with the same code."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=1))
    url = f"ws{server.url.removeprefix('http')}{path}"
    async with Wire.connected(server.websocket_url, **KEY) as wire, connect(url, **KEY) as dialect:
        await wire.until(ContextOpened, await wire.open(language="en"))
        for message in messages:
            await dialect.send(json.dumps(message))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                received = await dialect.recv()
                if isinstance(received, str) and "rate_limited" in received:
                    break


async def test_http_answers_429_with_retry_after_in_openais_form(start_server: StartServer) -> None:
    """OpenAI's client raises its RateLimitError; `Retry-After` has whole seconds, rounded up."""
    server = await start_server(
        api_keys=("key",), key_limits=Quota(contexts_per_s=1000, contexts=1)
    )
    async with (
        Wire.connected(server.websocket_url, **KEY) as wire,
        httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http,
    ):
        await wire.until(ContextOpened, await wire.open(language="en"))
        response = await http.post("/v1/audio/speech", json=SPEECH)
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        error = response.json()["error"]
        assert error.pop("message").startswith("this key has used its limit of 1 open contexts")
        assert error == {"type": "rate_limit_error", "param": None, "code": "rate_limited"}
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0)
        with pytest.raises(openai.RateLimitError) as raised:
            await client.audio.speech.create(model="tts-1", voice="nova", input="Hello.")
        assert raised.value.code == "rate_limited"
        await client.close()


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_only_a_trusted_proxy_names_the_client(
    start_server: StartServer, is_trusted: bool
) -> None:
    """Behind a proxy each client counts for itself; elsewhere the header changes nothing."""
    proxies = ("127.0.0.1",) if is_trusted else ("192.0.2.0/24",)
    server = await start_server(ip_limits=Quota(contexts=1), trusted_proxies=proxies)
    async with AsyncExitStack() as stack:
        wires = [
            await stack.enter_async_context(
                Wire.connected(server.websocket_url, additional_headers={"X-Forwarded-For": via})
            )
            for via in ("203.0.113.7", "203.0.113.8", "203.0.113.9, 203.0.113.7")
        ]
        await wires[0].until(ContextOpened, await wires[0].open(language="en"))
        if is_trusted:
            assert (await wires[1].say("Another client.")).done.reason == "complete"
        else:
            assert "this address" in (await refusal_of(wires[1])).message
        # The last address is the one that the proxy has seen; a client can invent the others.
        assert (await refusal_of(wires[2])).code == "rate_limited"


async def test_a_socket_that_dies_gives_its_contexts_back(start_server: StartServer) -> None:
    """A client that crashes does not lock out its key."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=2))
    for _ in range(3):
        wire = await Wire.connect(server.websocket_url, **KEY)
        for _ in range(2):
            await wire.until(ContextOpened, await wire.open(language="en"))
        wire.reset()
        await until(lambda: not server.state.sessions, "the socket is gone")
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        assert (await wire.say("Hello.")).done.reason == "complete"


async def usage_of(server: RunningServer, key: str, query: str = "") -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": key}) as http:
        return await http.get(f"/v1/usage{query}")


async def test_a_cancelled_context_counts_until_its_row_is_free(start_server: StartServer) -> None:
    """A key opens and cancels as fast as it can: it never has more rows than contexts."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=2))
    synthesizer = server.state.synthesizer
    await until(lambda: not synthesizer.rows_used, "the server's own probe has left its row")
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        with silent(server):  # the worker frees no row meanwhile
            for _ in range(2):
                context = await wire.open(language="en")
                await wire.text(context, "A sentence that takes a row. And more.")
                await wire.until(ContextOpened, context)
                await wire.cancel(context)
                await wire.until(DoneMessage, context)
            assert synthesizer.rows_used == 2
            assert (await refusal_of(wire)).code == "rate_limited"
        await until(lambda: synthesizer.rows_used < 2, "the worker has freed a row")
        assert (await wire.say("Now there is room.")).done.reason == "complete"


async def test_idle_sockets_keep_nobody_out(start_server: StartServer) -> None:
    """Where all sockets are in use, the caller with the most of them loses an idle one."""
    server = await start_server(api_keys=("one", "two"), max_sockets=4)
    async with AsyncExitStack() as stack:

        async def connected(key: str) -> Wire:
            headers = {"X-API-Key": key}
            wire = Wire.connected(server.websocket_url, additional_headers=headers)
            return await stack.enter_async_context(wire)

        busy, idle, *_ = [await connected("one") for _ in range(4)]
        await busy.until(ContextOpened, await busy.open(language="en"))
        with pytest.raises(InvalidStatus) as refused:
            await connected("one")
        assert refused.value.response.status_code == 503
        other = await connected("two")
        assert (await other.say("I was let in.")).done.reason == "complete"
        with pytest.raises(ConnectionClosed) as closed:
            await idle.receive()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
        await connected("two")
        with pytest.raises(InvalidStatus):
            await connected("two")


async def test_usage_shows_contexts_characters_and_audio_by_key(start_server: StartServer) -> None:
    """Sockets and HTTP count alike, refused contexts not at all."""
    server = await start_server(api_keys=("key", "other"))
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        received = await wire.say("Hello there.", language="en")
        await refusal_of(wire, voice="no such voice")
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "other"}) as http:
        audio = (await http.post("/v1/audio/speech", json=SPEECH)).content
    answer = (await usage_of(server, "key")).json()
    assert answer["since_start"]
    rows = {row["key_id"]: row for row in answer["data"]}
    one, other = (rows[f"settings-{hash_key(key)[7:15]}"] for key in ("key", "other"))
    assert (one["contexts"], one["characters"], one["name"]) == (1, 12, "api_keys")
    assert one["audio_seconds"] == pytest.approx(received.audio_ms / 1000, abs=0.002)
    assert (other["contexts"], other["characters"]) == (1, 6)
    assert other["audio_seconds"] == pytest.approx(len(audio) / 48_000, abs=0.002)


async def test_a_key_without_admin_sees_its_own_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Neither its usage nor what its answers say of their audio tells what others have said."""
    made = [make_key(name, frozenset({Scope.SPEAK}), Quota()) for name in ("one", "two")]
    admin = make_key("admin", frozenset({Scope.SPEAK, Scope.ADMIN}), Quota())
    keys = tuple(each.key for each in (*made, admin))
    (tmp_path / "keys.json").write_text(KeyDocument(keys=keys).dump())
    server = await start_server(keys=str(tmp_path / "keys.json"), cache_mb=10)
    hashes: dict[str, set[str]] = {each.key.id: set() for each in made}
    for _ in range(3):  # the third one comes from the cache
        for each in made:
            headers = {"X-API-Key": each.secret}
            address = server.websocket_url
            async with Wire.connected(address, additional_headers=headers) as wire:
                done = (await wire.say("Your table is booked.", language="en")).done
            assert done.provenance is not None and done.provenance.sha256 is not None
            hashes[each.key.id].add(done.provenance.sha256)
    one, two = hashes.values()
    assert not one & two
    for each in made:
        rows = (await usage_of(server, each.secret)).json()["data"]
        assert [row["key_id"] for row in rows] == [each.key.id]
    rows = (await usage_of(server, admin.secret)).json()["data"]
    assert {row["key_id"] for row in rows} == hashes.keys()


async def test_the_request_log_has_hashes_and_no_text(
    start_server: StartServer, tmp_path: Path
) -> None:
    """One line for each context, also where it was refused; equal texts have equal hashes."""
    path = tmp_path / "requests.jsonl"
    server = await start_server(
        api_keys=("key",), key_limits=Quota(chars_per_minute=100), request_log=path,
    )  # fmt: skip
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        for text in ("Swordfish.", "Swordfish.", "Catfish."):
            await wire.say(text, language="en")
        held = await wire.open(language="en")
        await wire.text(held, "Goldfish.")
        await wire.cancel(held)
        await wire.until(DoneMessage, held)
        await refusal_of(wire, voice="no such voice")
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http:
        spoken = await http.post("/v1/audio/speech", json=SPEECH)
        await http.post("/v1/audio/speech", json={"input": "Hello.", "voice": "x" * 128})
    await until(lambda: path.exists() and path.read_text().count("\n") == 7, "the log is written")
    text = path.read_text()
    assert "fish" not in text and "Hello" not in text and 'key"' not in text.replace("key_id", "")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["outcome"] for line in lines] == [
        *["complete"] * 3, "cancelled", "refused", "complete", "refused",
    ]  # fmt: skip
    hashes = [line.get("input_hmac") for line in lines]
    assert hashes[0] == hashes[1] != hashes[2] and hashes[4] is None
    assert lines[0]["key_id"] == f"settings-{hash_key('key')[7:15]}"
    assert lines[0]["ttfa_s"] > 0 and lines[0]["audio_s"] > 0.2 and lines[0]["voice"] == "default"
    assert (lines[4]["code"], lines[0]["code"]) == ("invalid_voice", None)
    assert lines[6]["voice"] == "x" * 64  # a client cannot fill the disk with names
    assert lines[5]["request_id"] == spoken.headers["X-Request-Id"]
    assert lines[5]["path"] == "/v1/audio/speech" and lines[0]["path"] == "/v1/tts/ws"


async def test_a_full_disk_stops_no_context(start_server: StartServer, tmp_path: Path) -> None:
    """The service goes on; a metric counts what was not written."""
    path = tmp_path / "requests.jsonl"
    server = await start_server(request_log=path)
    path.unlink()
    path.symlink_to("/dev/full")
    async with Wire.connected(server.websocket_url) as wire:
        for _ in range(3):
            assert (await wire.say("Hello.")).done.reason == "complete"
    await until(
        lambda: metric_value(server, "tts_log_failures_total", log="request_log") >= 3,
        "the failures are counted",
    )


async def test_the_audit_records_begin_with_the_servers_keys_and_limits(
    start_server: StartServer,
) -> None:
    """What was in force from when on."""
    with capture_logs() as logs:
        await start_server(api_keys=("key",), key_limits=Quota(contexts=3), host="127.0.0.1")
    started = next(line for line in logs if line.get("audit"))
    assert started["event"] == "server_started"
    assert started["keys"] == [f"settings-{hash_key('key')[7:15]}"]
    assert (started["key_limits"], started["ip_limits"]) == ({"contexts": 3}, {})


async def test_refused_messages_do_not_fill_the_log(server: RunningServer) -> None:
    """No limit counts them; each is answered and counted, and only some are logged."""
    answered = 0
    with capture_logs() as logs:
        async with raw_websocket(server.url, "/v1/tts/ws") as raw:
            await raw.send(frame(TEXT, b'{"type": "context.open", "context_id": 5}') * 300)
            async with asyncio.timeout(PATIENCE_S):
                while answered < 300:
                    answered += b'"error"' in (await raw.receive())[1]
    assert metric_value(server, "tts_errors_total", code="invalid_param") >= 300
    assert 10 <= [line["event"] for line in logs].count("message_refused") <= 100


async def test_cancelled_contexts_that_are_not_read_do_not_pile_up(
    start_server: StartServer,
) -> None:
    """Each holds its text until its `done` is sent; the others are opened when it was."""
    server = await start_server(max_contexts=2)
    async with raw_websocket(server.url, "/v1/tts/ws") as raw:
        (session,) = server.state.sessions
        contexts = session._writer.contexts
        messages = (
            message
            for context_id in map(str, range(30))
            for message in (
                {"type": "context.open", "context_id": context_id, "language": "en"},
                {"type": "text", "context_id": context_id, "text": "日" * 15_000},
                {"type": "cancel", "context_id": context_id},
            )
        )
        frames = [frame(TEXT, json.dumps(each, ensure_ascii=False).encode()) for each in messages]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(raw.send(*frames))
            await until(lambda: len(contexts) > 4, "contexts wait")
            for _ in range(500):  # the server reads as much as it will
                await asyncio.sleep(0)
            most, done = len(contexts), 0
            async with asyncio.timeout(PATIENCE_S):
                while done < 30:
                    done += b'"done"' in (await raw.receive())[1]
    assert most == 5


@pytest.fixture
def permit_files() -> Iterator[Callable[[int | None], None]]:
    """Limits how many files this process may open beside those that it has open; None ends it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:

        def permit(more: int | None) -> None:
            if more is None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                return
            number = os.dup(0)
            while number < max(map(int, os.listdir("/proc/self/fd"))) - 1:  # it has one of its own
                stack.callback(os.close, number)
                number = os.dup(0)
            stack.callback(os.close, number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (number + 1 + more, hard))

        yield permit
        permit(None)


async def _get(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str) -> bytes:
    reader, writer = connection
    answer = b""
    with suppress(ConnectionError):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
    writer.close()
    return answer


async def test_connections_leave_open_files_to_others(
    start_server: StartServer,
    permit_files: Callable[[int | None], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last ones are refused with one warning, and those before them served."""
    server = await start_server()
    permit_files(connections._RESERVED_FILES + 8)
    with capture_logs() as logs:
        opened = [await asyncio.open_connection("127.0.0.1", _port_of(server)) for _ in range(10)]
        answers = [await _get(each, "/") for each in opened]
    served = [answer.startswith(b"HTTP/1.1 200 OK") for answer in answers]
    assert served == sorted(served, reverse=True)
    assert 2 <= sum(served) <= 5  # the test holds as many files as the server
    assert [each["event"] for each in logs].count("open_files_ran_out") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_server_without_open_files_serves_again_when_there_are_some(
    start_server: StartServer,
    permit_files: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each connection that could not be accepted was a traceback, sixteen in a second."""
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.05)
    server = await start_server()
    with closing(socket.socket()) as client, capture_logs() as logs:
        permit_files(0)
        client.connect(("127.0.0.1", _port_of(server)))
        await until(lambda: bool(logs), "the lack is told")
        permit_files(None)
        assert b"200 OK" in await _get(await asyncio.open_connection(sock=client), "/health/live")
    assert [each["event"] for each in logs].count("open_files_ran_out") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _port_of(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


_GET = b"GET /health/live HTTP/1.1\r\nHost: a\r\n"
_POST = b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_UPGRADE = b"GET /v1/tts/ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
SENT = {
    "nothing": (b"", []),
    "half of a line": (b"GET /health/li", []),
    "lines without an end": (_GET, []),
    "a second request": (_GET + b"\r\nGET /health/li", [200]),
    "a body that does not come": (_POST + b'Content-Length: 9\r\n\r\n{"input"', [408]),
    "a chunk that does not come": (_POST + _CHUNKED + b"1\r\n{\r\n", [408]),
    "a handshake with a long header": (_UPGRADE + b"X: " + b"a" * 9000 + b"\r\n\r\n", [400]),
    "a handshake with many headers": (_UPGRADE + b"X: a\r\n" * 200 + b"\r\n", [400]),
    "a handshake with a body": (_UPGRADE + b"Content-Length: 2\r\n\r\n{}", [400]),
    "a handshake with chunks": (_UPGRADE + _CHUNKED, [400]),
    "some headers": (_GET + b"a:b\r\n" * 200 + b"\r\n", [200]),
    "many headers": (_GET + b"a:b\r\n" * 1_000 + b"\r\n", []),
    "some trailers, twice": (
        2 * (_POST + _CHUNKED + b"1\r\n{\r\n0\r\n" + b"X-a: b\r\n" * 100 + b"\r\n"),
        [400, 400],
    ),
}
"""What a client sends, and the statuses of the answers until its connection ends."""


@pytest.mark.parametrize("kind", SENT)
async def test_every_connection_has_its_answers_and_an_end(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whatever comes of a request, it occupies an open file, and the loop, for a while only."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(app, "BODY_S", 0.1)
    server = await start_server()
    sent, statuses = SENT[kind]
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(sent)
    answer = b""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                answer += data
    writer.close()
    assert [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", answer)] == statuses
    assert (b"idle_timeout" in answer) == (statuses == [408])


async def test_a_complete_request_may_take_as_long_as_its_speech(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times for a body and for a request end with them."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(app, "BODY_S", 0.2)
    server = await start_server()
    async with httpx.AsyncClient(base_url=server.url) as client:
        long_text = {**SPEECH, "input": "This is a sentence of some length. " * 200}
        assert (await client.post("/v1/audio/speech", json=long_text)).status_code == 200


async def test_requests_do_not_wait_for_each_other(server: RunningServer) -> None:
    """Thousands of requests at once take no memory; they are answered one after the other."""
    state = server.uvicorn_server.server_state
    answers = b""
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000)
    writer.write_eof()
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            answers += data
            assert len(state.tasks) <= 2  # one may have just ended
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert b" 400 " not in answers
    writer.close()


async def test_many_connections_at_once_are_accepted_a_few_at_a_time(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop has other work between them; and none of them is refused meanwhile."""
    server = await start_server()
    loop = asyncio.get_running_loop()
    accepted = [0]
    original = RequestProtocol.connection_made

    def connection_made(self: RequestProtocol, transport: asyncio.Transport) -> None:
        accepted[-1] += 1
        original(self, transport)

    def count() -> None:
        accepted.append(0)
        if sum(accepted) < 300:
            loop.call_soon(count)

    monkeypatch.setattr(RequestProtocol, "connection_made", connection_made)
    count()
    with ExitStack() as stack:
        for _ in range(300):  # without a return to the event loop: all wait in the kernel
            address = ("127.0.0.1", _port_of(server))
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
        await until(lambda: sum(accepted) >= 300, "all are accepted")
    assert max(accepted) <= 16


async def _send_until_closed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes
) -> None:
    """Send `part` again and again until the server ends the connection, which it has to do soon."""
    sent_bytes = 0
    with suppress(ConnectionError):
        while not writer.is_closing() and not reader.at_eof():
            assert sent_bytes < 4 << 20, "lines without an end are read"
            writer.write(part * 1000)
            sent_bytes += 1000 * len(part)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()


@pytest.mark.parametrize("part", [b"X-a: b\r\n", b"x"], ids=["many headers", "a long one"])
async def test_headers_have_an_end(start_server: StartServer, part: bytes) -> None:
    """A connection whose headers do not end is closed; one with a body that is refused is not."""
    server = await start_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /health/live HTTP/1.1\r\nX: ")
    await _send_until_closed(reader, writer, part)
    async with httpx.AsyncClient(base_url=server.url) as client:
        for _ in range(2):
            refused = await client.post("/v1/audio/speech", content=bytes(2 << 20))
            assert refused.status_code == 413
            assert (await client.get("/health/live")).status_code == 200


@pytest.mark.parametrize("key", ["key", "none"])
@pytest.mark.parametrize("part", [b"X-a: b\r\n", b"x"], ids=["many trailers", "a long one"])
async def test_trailers_have_an_end(start_server: StartServer, key: str, part: bytes) -> None:
    """What comes behind a chunked body is kept; few are read, also of a client without a key."""
    server = await start_server(api_keys=("key",))
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\n"
    writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ")
    await _send_until_closed(reader, writer, part)


async def test_a_body_that_breaks_behind_its_refusal_ends_the_connection(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no second answer to its request, and no traceback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
    writer.write(b"no size\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert b"HTTP/1.1" not in await reader.read()
    writer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_few_sockets_have_a_large_message_that_does_not_end(server: RunningServer) -> None:
    """Their memory is bounded; where few have one, it is read to its end, and answered."""
    begun = b"\x81\xff" + (600_000).to_bytes(8, "big") + bytes(4 + 200_000)  # masked with zeros
    with ExitStack() as stack:
        urls = [server.websocket_url] * (connections._MAX_UNFINISHED + 3)
        wires = [await Wire.connect(url) for url in urls]
        for wire in wires:  # within a message, the server reads no close that it would answer
            stack.callback(wire.websocket.transport.abort)
            wire.websocket.transport.write(begun)
        await until(lambda: sum(is_closed(wire) for wire in wires) == 3, "three are closed")
        codes = [wire.websocket.close_code for wire in wires if is_closed(wire)]
        assert codes == [1009] * 3
        open_wire = next(wire for wire in wires if not is_closed(wire))
        open_wire.websocket.transport.write(bytes(400_000))
        assert (await open_wire.until(ErrorMessage)).code == "invalid_json"


def is_closed(wire: Wire) -> bool:
    return wire.websocket.close_code is not None
