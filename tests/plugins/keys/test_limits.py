"""Limits on sockets and over HTTP: how they are refused, and who counts as one client."""

import asyncio
import asyncio.constants
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import openai
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from testbed.servers import StartServer, metric_value, silent
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.plugins.usage.book import UsageBook
from voiceagent_tts.protocol.messages import ContextOpened, DoneMessage, ErrorMessage
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


@pytest.mark.parametrize(
    "name", ["hello secret words", "999.1.1.1", "unknown", pytest.param("a" * 5_000, id="long")]
)
async def test_a_word_that_is_no_address_names_nobody(start_server: StartServer, name: str) -> None:
    """A client has one limit, whatever it writes before the address that the proxy has seen.

    Where the proxy names nobody, all its clients have the limit of the proxy.
    """
    server = await start_server(ip_limits=Quota(chars_per_minute=10))
    async with httpx.AsyncClient(base_url=server.url) as http:
        for seen in ("", ", 203.0.113.7:4711"):
            for number, status in enumerate((200, 429)):
                claim = {"X-Forwarded-For": f"203.0.113.{number}, {name}{number}{seen}"}
                answer = await http.post("/v1/audio/speech", json=SPEECH, headers=claim)
                assert answer.status_code == status


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
