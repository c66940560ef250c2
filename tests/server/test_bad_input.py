"""Bad input from real clients gets an error with a stable code, and the next request works."""

import json
import re
from typing import Any

import httpx
import pytest
from python_multipart.multipart import parse_options_header
from starlette import formparsers, requests
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK
from websockets.frames import Frame, Opcode

from testbed.wire import Wire
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.messages import ErrorMessage
from voiceagent_tts.server import app
from voiceagent_tts.server.serve import RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SILENT_TEXTS = {
    "empty": "",
    "blank": "  \n\t ",
    "punctuation": "... !? -- ()",
    "emoji": "\U0001f642 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "controls": "\x01\x02\x1b\x7f",
}
UNSAID_TEXTS = {
    **SILENT_TEXTS,
    "an image": "![](http://x.y/z.png)",
    "a link without a label": "[](http://x.y/z)",
    "entities": "&nbsp;&hellip;",
    "a tag": "<br>",
    "a fence": "```\n```",
    "a break without markup": '<break time="200ms"/>',
}
SPEAKABLE_TEXTS = {
    "a NUL inside": "Hello\x00 there.",
    "controls inside": "Hel\x08lo \x1b[31mthere\x07.",
    "bidirectional overrides": "Hello \u202ethere\u202c.",
    "markdown": "# **Hello**\n\n- `there`\n",
    "emoji inside": "Hello \U0001f642 there",
    "one character": "a",
    "a word of 10,000 characters": "a" * 10_000,
    "no white space": "你好" * 500,
}
REFUSED_MESSAGES: dict[str, tuple[Any, ErrorCode]] = {
    "binary garbage": (b"\x01\x00\xff\xfe", ErrorCode.INVALID_MESSAGE),
    "a message in binary": (b'{"type":"ping"}', ErrorCode.INVALID_MESSAGE),
    "no JSON": ("hello", ErrorCode.INVALID_JSON),
    "a JSON depth bomb": ("[" * 30_000, ErrorCode.INVALID_JSON),
    "no type": ({"context_id": "a"}, ErrorCode.INVALID_MESSAGE),
    "an unknown type": ({"type": "dance"}, ErrorCode.UNKNOWN_TYPE),
    "text for no context": ({"type": "text", "text": "hi"}, ErrorCode.INVALID_MESSAGE),
    "a float for an integer": ({"type": "ping", "t": 1.5}, ErrorCode.INVALID_PARAM),
    **{
        f"{kind} of an unknown context": (
            {"type": kind, "context_id": "a", **fields},
            ErrorCode.CONTEXT_NOT_FOUND,
        )
        for kind, fields in (
            ("end", {}),
            ("cancel", {}),
            ("flush", {"flush_id": 1}),
            ("cut", {"played_ms": 1}),
        )
    },
    "a message of 100,000 characters": (
        {"type": "text", "context_id": "a", "text": "word " * 20_000},
        ErrorCode.MESSAGE_TOO_BIG,
    ),
    "a prepare with an unknown voice": (
        {"type": "prepare", "voice": "nobody"},
        ErrorCode.INVALID_VOICE,
    ),
}
"""One of each kind; `tests/protocol/test_messages.py` has all that a message may have wrong."""
REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "an unknown voice": ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
    "an unknown language": ({"language": "klingon"}, ErrorCode.INVALID_LANGUAGE),
    "a mistake in the lexicon": ({"lexicon": {"zq": {}}}, ErrorCode.INVALID_PARAM),
    "an unknown rate": ({"audio": {"sample_rate": 11025}}, ErrorCode.INVALID_PARAM),
    "a message of 100,000 characters": ({"x": "x" * 100_000}, ErrorCode.MESSAGE_TOO_BIG),
}


async def check_alive(wire: Wire) -> None:
    """Check that the next request on this socket is spoken, without additional answers."""
    answers = len(wire.answers)
    received = await wire.say("Hello there.", language="en")
    assert received.done.reason == "complete"
    assert received.audio_ms > 300
    assert len(wire.answers) == answers, "an answer too many"


async def refusal(wire: Wire) -> ErrorMessage:
    return await wire.until(ErrorMessage)


# Over the WebSocket


@pytest.mark.parametrize("name", REFUSED_MESSAGES)
async def test_a_bad_message_is_answered(wire: Wire, name: str) -> None:
    message, code = REFUSED_MESSAGES[name]
    await wire.send_raw(message)
    error = await refusal(wire)
    assert error.code == code
    assert not error.retryable
    await check_alive(wire)


@pytest.mark.parametrize("name", REFUSED_OPTIONS)
async def test_a_bad_open_is_answered(wire: Wire, name: str) -> None:
    """A context that cannot open gets an error and `done`, and its id stays used."""
    options, code = REFUSED_OPTIONS[name]
    received = wire.expect("bad")
    await wire.send_raw({"type": "context.open", "context_id": "bad", **options})
    await wire.finish(received)
    assert received.error is not None
    assert received.error.code == code
    assert "zq" not in received.error.message, "an entry of a lexicon is the client's text"
    assert received.done.reason == "error"
    await wire.send_raw({"type": "context.open", "context_id": "bad"})
    assert (await refusal(wire)).code == ErrorCode.CONTEXT_EXISTS
    await check_alive(wire)


@pytest.mark.parametrize("name", SILENT_TEXTS)
async def test_text_without_speech_ends_in_silence(wire: Wire, name: str) -> None:
    """A text without letters or digits is not an error: its context completes without audio."""
    received = await wire.say(SILENT_TEXTS[name])
    assert (received.done.reason, received.audio_ms, received.words) == ("complete", 0, [])
    await check_alive(wire)


async def test_letters_that_the_voice_cannot_speak_are_an_error(wire: Wire) -> None:
    """No silence that seems to have been heard."""
    received = await wire.say("९८७", language="en")
    assert received.error is not None and received.error.code == ErrorCode.TEXT_UNSPEAKABLE
    assert (received.done.reason, received.audio_ms) == ("error", 0)
    await check_alive(wire)


async def test_digits_of_another_script_are_not_called_punctuation(http: httpx.AsyncClient) -> None:
    """An English voice is silent for Hindi digits; the error says what to choose."""
    body = {"input": "९८७", "language": "en"}
    response = await http.post("/v1/audio/speech", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, ErrorCode.TEXT_UNSPEAKABLE)
    assert "punctuation" not in error["message"] and "choose another voice" in error["message"]


@pytest.mark.parametrize("name", SPEAKABLE_TEXTS)
async def test_odd_text_is_spoken(wire: Wire, name: str) -> None:
    """Characters without a sound are skipped; every letter is still part of a word."""
    received = await wire.say(SPEAKABLE_TEXTS[name])
    assert received.done.reason == "complete"
    assert received.audio_ms > 0
    await check_alive(wire)


async def test_a_second_cancel_or_end_is_ignored(wire: Wire) -> None:
    ended, cancelled, both = [await wire.open() for _ in range(3)]
    for received in (ended, cancelled, both):
        await wire.text(received, "Hello.")
    for _ in range(2):
        await wire.send_raw({"type": "end", "context_id": ended.record.context_id})
        await wire.cancel(cancelled)
        await wire.send_raw({"type": "end", "context_id": both.record.context_id})
    await wire.cancel(both)
    await wire.send_raw({"type": "end", "context_id": both.record.context_id})
    assert (await wire.finish(ended)).done.reason == "complete"
    for received in (cancelled, both):
        assert (await wire.finish(received)).done.reason == "cancelled"
    await wire.cancel(cancelled)
    await wire.cancel(ended)
    await check_alive(wire)
    assert all(received.error is None for received in (ended, cancelled, both))


async def test_a_65th_context_waits_for_room(wire: Wire) -> None:
    """A context beyond the limit is refused; a cancelled one makes room at once."""
    contexts = [await wire.open() for _ in range(65)]
    await wire.finish(contexts[64])
    assert contexts[64].error is not None
    assert contexts[64].error.code == ErrorCode.TOO_MANY_CONTEXTS
    assert contexts[64].error.retryable
    await wire.cancel(contexts[0])
    room = await wire.open(max_lead_s=0)
    assert (await wire.speak(room, "There is room.")).done.reason == "complete"
    for received in contexts[1:64]:
        await wire.text(received, "Hello.")
        await wire.end(received)
    for received in contexts[1:64]:
        assert (await wire.finish(received)).done.reason == "complete"
    await check_alive(wire)


async def test_too_much_text_is_not_taken(wire: Wire) -> None:
    """Of 100,000 characters in messages that fit, those beyond the limit are refused."""
    received = await wire.open(max_lead_s=0)
    await wire.text(received, "Hello.")
    message = {"type": "text", "context_id": received.record.context_id, "text": "word " * 5_000}
    for _ in range(4):
        await wire.send_raw(message)
        assert (await refusal(wire)).code == ErrorCode.TEXT_TOO_LONG
    await wire.speak(received)
    assert (received.done.reason, received.done.chars) == ("complete", len("Hello."))
    await check_alive(wire)


async def test_defaults_that_open_nothing_are_told(wire: Wire) -> None:
    """Text for a new id that cannot open with the session's voice gets an error and `done`."""
    await wire.send_raw({"type": "session.update", "voice": "nobody"})
    received = wire.expect("new", "Hello.")
    await wire.send_raw({"type": "text", "context_id": "new", "text": "Hello."})
    await wire.finish(received)
    assert received.error is not None
    assert (received.error.code, received.done.reason) == (ErrorCode.INVALID_VOICE, "error")
    await wire.send_raw({"type": "session.update", "voice": None})
    await check_alive(wire)


async def test_nothing_leaks_into_another_context(wire: Wire) -> None:
    alone = await wire.say("The quick brown fox jumps over the lazy dog.", language="en")
    received = await wire.open(max_lead_s=0, language="en")
    refused = list(REFUSED_MESSAGES.values())
    for index, chunk in enumerate("The quick brown fox jumps over the lazy dog.".split(" ")):
        await wire.text(received, f" {chunk}" if index else chunk)
        for message, _ in refused[index::9]:
            await wire.send_raw(message)
    await wire.speak(received)
    assert [word.word for word in received.words] == [word.word for word in alone.words]
    assert len(wire.answers) == 1 + len(refused)  # `ready`, and one error for each message
    await check_alive(wire)


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\xff\xfe", 1007), (b"x" * (640 << 10) + b"x", 1009)],
    ids=["no UTF-8", "huge"],
)
async def test_what_no_socket_can_carry_closes_it(
    shared_server: RunningServer, data: bytes, code: int
) -> None:
    """RFC 6455: before a huge message is in memory; the server accepts the next socket."""
    async with Wire.connected(shared_server.websocket_url) as wire:
        await wire.websocket.send(data, text=True)
        with pytest.raises(ConnectionClosedError) as closed:
            await wire.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code
    async with Wire.connected(shared_server.websocket_url) as wire:
        await check_alive(wire)


BESIDE_A_CLOSE = {
    "text without UTF-8": [Frame(Opcode.TEXT, b"\xff\xfe")],
    "a fragment without UTF-8": [Frame(Opcode.TEXT, b"\xff", fin=False), Frame(Opcode.CONT, b"")],
    "too many fragments": [
        Frame(Opcode.TEXT, b"", fin=False), *[Frame(Opcode.CONT, b"", fin=False)] * 5000
    ],
    "a message, and a ping": [Frame(Opcode.TEXT, b"\xff"), Frame(Opcode.PING, b"")],
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_A_CLOSE)
async def test_a_broken_message_beside_a_close_logs_nothing(
    name: str, shared_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Both may be read at once; the close is answered, and no traceback is written."""
    async with Wire.connected(shared_server.websocket_url) as wire:
        frames = [*BESIDE_A_CLOSE[name], Frame(Opcode.CLOSE, b"\x03\xe8")]
        data = b"".join(frame.serialize(mask=True) for frame in frames)
        wire.websocket.transport.write(data)
        with pytest.raises((ConnectionClosedError, ConnectionClosedOK)):
            await wire.receive()
    async with Wire.connected(shared_server.websocket_url) as wire:
        await check_alive(wire)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


# Over HTTP

REFUSED_BODIES: dict[str, tuple[bytes, int, ErrorCode]] = {
    "nothing": (b"", 400, ErrorCode.INVALID_PARAM),
    "binary garbage": (b"\x00\x01\xff", 400, ErrorCode.INVALID_JSON),
    "no JSON": (b"hello", 400, ErrorCode.INVALID_JSON),
    "invalid UTF-8": (b'{"input": "\xff\xfe"}', 400, ErrorCode.INVALID_JSON),
    "a JSON depth bomb": (b"[" * 20_000, 400, ErrorCode.INVALID_JSON),
    "a closed depth bomb": (
        b'{"input": "a", "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        400,
        ErrorCode.INVALID_JSON,
    ),
    "an integer that is too large": (
        b'{"input": "a", "seed": 1' + b"0" * 10_000 + b"}",
        400,
        ErrorCode.INVALID_JSON,
    ),
    "a body of 5 MiB": (b'{"input": "' + b"a" * (5 << 20) + b'"}', 413, ErrorCode.MESSAGE_TOO_BIG),
    "an array": (b"[]", 400, ErrorCode.INVALID_PARAM),
}
REFUSED_FIELDS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no input": ({"input": None}, ErrorCode.INVALID_PARAM),
    "input that is a number": ({"input": 5}, ErrorCode.INVALID_PARAM),
    "100,000 characters": ({"input": "word " * 20_000}, ErrorCode.TEXT_TOO_LONG),
    "an unknown voice": ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
    "a voice of the wrong type": ({"voice": 5}, ErrorCode.INVALID_PARAM),
    "an unknown language": ({"language": "klingon"}, ErrorCode.INVALID_LANGUAGE),
    "an unknown model": ({"model": "gpt-5"}, ErrorCode.INVALID_PARAM),
    "a model that ends with no language": ({"model": "tts-1-xx"}, ErrorCode.INVALID_PARAM),
    "an unknown format": ({"response_format": "exe"}, ErrorCode.INVALID_PARAM),
    "a speed that is too high": ({"speed": 9}, ErrorCode.INVALID_PARAM),
    "a speed that is text": ({"speed": "1"}, ErrorCode.INVALID_PARAM),
    "a negative seed": ({"seed": -1}, ErrorCode.INVALID_PARAM),
    "an unknown priority": ({"priority": "high"}, ErrorCode.INVALID_PARAM),
}


async def check_refused(http: httpx.AsyncClient, body: bytes, status: int, code: str) -> None:
    """Check for one error in OpenAI's envelope, and that the next request is spoken."""
    headers = {"Content-Type": "application/json"}
    response = await http.post("/v1/audio/speech", content=body, headers=headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    await check_spoken(http, {"input": "Hello there."})


async def check_spoken(http: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    response = await http.post("/v1/audio/speech", json={"response_format": "pcm", **fields})
    assert response.status_code == 200, response.text
    assert any(response.content)


@pytest.mark.parametrize("name", REFUSED_BODIES)
async def test_a_bad_body_is_answered(http: httpx.AsyncClient, name: str) -> None:
    await check_refused(http, *REFUSED_BODIES[name])


@pytest.mark.parametrize("value", ["0", "{}", "[", '"n": 0'])
async def test_no_route_reads_a_body_of_many_values(http: httpx.AsyncClient, value: str) -> None:
    """JSON is parsed and checked in one turn of the loop: its values are few, on every route."""
    form = '{"input": "a", %s}' if ":" in value else '{"input": "a", "x": [%s]}'
    body = form % ",".join([value] * 40_000)
    paths = (await http.get("/openapi.json")).json()["paths"]
    routes = [
        path
        for path, methods in paths.items()
        if "application/json" in methods.get("post", {}).get("requestBody", {}).get("content", {})
    ]
    assert len(routes) > 5
    for path in routes:
        url = path.replace("{voice_id}", "default")
        answer = await http.post(url, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413, url
        assert "30000 commas and brackets" in answer.text


@pytest.mark.parametrize(
    "charset",
    ["punycode", "PUNYCODE", '"puny\\code"', "idna", "unicode_escape", "utf-7", "x" * 999],
)
async def test_no_form_is_decoded_by_a_codec_that_its_client_names(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, charset: str
) -> None:
    """Some are quadratic: 1 MB of punycode stopped the event loop for 7 s."""
    decoded: list[str] = []
    monkeypatch.setattr(formparsers, "_user_safe_decode", lambda _, name: decoded.append(name))
    for name in (
        f"charset={charset}",
        f"a=b; CHARSET = {charset}",
        f"charset=utf-8; charset={charset}",
    ):
        kind = f"multipart/form-data; boundary=b; {name}"
        body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\naaa\r\n--b--\r\n'
        headers = {"Content-Type": kind}
        answer = await http.post("/v1/provenance/detect", content=body, headers=headers)
        assert answer.json()["error"]["code"] == "invalid_param"
    assert set(decoded) <= {"utf-8"}


async def test_a_long_content_type_is_not_parsed(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 kB of semicolons stopped the event loop for 80 ms."""
    parsed_chars: list[int] = []

    def parse(value: str | bytes | None) -> tuple[bytes, dict[bytes, bytes]]:
        parsed_chars.append(len(value or ""))
        return parse_options_header(value)

    for module in (app, formparsers, requests):
        monkeypatch.setattr(module, "parse_options_header", parse)
    headers = {"Content-Type": "multipart/form-data; boundary=b" + ";" * 12_000}
    answer = await http.post("/v1/provenance/detect", content=b"--b--\r\n", headers=headers)
    assert answer.json()["error"]["code"] == "invalid_param"
    assert max(parsed_chars, default=0) <= 1024


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
async def test_a_long_query_is_not_parsed(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """60 kB of `&` stopped the event loop for 170 ms, also of a client without a key."""
    parsed: list[object] = []
    monkeypatch.setattr(requests, "QueryParams", lambda query: parsed.append(query) or {})
    answer = await http.get(f"{path}?{'a&' * 6_000}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_param")
    assert parsed == []


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/v1/audio/speech", {"json": {"input": "A.", "voice": {"id": 5}}}, "voice: Input"),
        ("POST", "/v1/provenance/detect", {"data": {"file": "A."}}, "file: Input should be a file"),
        ("GET", "/v1/models/nope", {}, "model: expected one of"),
    ],
)
async def test_a_mistake_is_told_without_names_of_types(
    http: httpx.AsyncClient, method: str, path: str, body: dict[str, Any], message: str
) -> None:
    """The field and what was expected, in the words of the documents."""
    told = (await http.request(method, path, **body)).json()["error"]["message"]
    assert told.startswith(message)
    assert not re.search("class|UploadFile|function|constrained|Value error", told)


async def test_a_form_has_few_fields(http: httpx.AsyncClient) -> None:
    """In either encoding; older releases of Starlette read any number, on the event loop."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await http.post("/v1/provenance/detect", content=b"a=1&" * 1100, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("charset", ["UTF-8", "utf-8", "us-ascii", '"iso-8859-1"'])
async def test_a_form_may_state_its_charset(http: httpx.AsyncClient, charset: str) -> None:
    """Clients state the common ones."""
    headers = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
    answer = await http.post("/v1/provenance/detect", content=b"--b--\r\n", headers=headers)
    assert answer.json()["error"]["message"].startswith("file: ")


async def test_a_text_of_commas_is_not_many_values(http: httpx.AsyncClient) -> None:
    """The longest text is read, whatever its characters; and a lexicon of the largest size."""
    lexicon = {f"w{number}": {"say": "a", "ipa": "a"} for number in range(500)}
    await check_spoken(http, {"input": "Hello." + "," * 19_000, "lexicon": lexicon})


@pytest.mark.parametrize("name", REFUSED_FIELDS)
async def test_a_bad_field_is_answered(http: httpx.AsyncClient, name: str) -> None:
    fields, code = REFUSED_FIELDS[name]
    await check_refused(http, json.dumps({"input": "Hello.", **fields}).encode(), 400, code)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"input": "Hi.", "speed": NaN}', "speed: Input should be a finite number"),
        (json.dumps({"input": "word " * 20_000}).encode(), "got 100000; send several requests"),
    ],
)
async def test_pain_13_errors_over_http_say_what_to_do(
    http: httpx.AsyncClient, body: bytes, sentence: str
) -> None:
    """The sentence fits a request over HTTP, where no text can be sent later."""
    headers = {"Content-Type": "application/json"}
    response = await http.post("/v1/audio/speech", content=body, headers=headers)
    assert response.status_code == 400
    assert sentence in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/tts/ws", "/v1/audio/speech/stream", "/tts/websocket"])
async def test_a_plain_request_to_a_websocket_is_explained(
    http: httpx.AsyncClient, path: str
) -> None:
    """Who opens the address of a WebSocket in a browser learns what it is."""
    response = await http.get(path)
    assert (response.status_code, response.headers["Upgrade"]) == (426, "websocket")
    error = response.json()["error"]
    assert error["code"] == "upgrade_required"
    assert f"{path}, got a plain GET; connect to ws://" in error["message"]
    by_tls = await http.get(path, headers={"X-Forwarded-Proto": "https"})
    assert f"connect to wss://{by_tls.url.netloc.decode()}{path}" in by_tls.text


@pytest.mark.parametrize("name", UNSAID_TEXTS)
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/audio/speech", {"stream_format": "sse"}),
        ("/v1/audio/speech", {"stream_format": "ndjson"}),
        ("/v1/audio/speech", {"stream": False}),
        ("/v1/text-to-speech/default", {}),
        ("/v1/text-to-speech/default/stream/with-timestamps", {}),
        (
            "/tts/bytes",
            {"output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}},
        ),
    ],
)
async def test_nothing_to_speak_is_no_error_at_any_door(
    http: httpx.AsyncClient, name: str, path: str, fields: dict[str, Any]
) -> None:
    """Events, lines, whole files and the other dialects answer with silence, as sockets do."""
    text = UNSAID_TEXTS[name]
    response = await http.post(path, json={"text": text, "transcript": text, **fields})
    assert response.status_code == 200, response.text
    assert "error" not in response.headers["Content-Type"] and "error" not in response.text


async def test_odd_fields_do_no_harm(http: httpx.AsyncClient) -> None:
    """Unknown fields are ignored, and a lone surrogate, which JSON can carry, is skipped."""
    await check_spoken(http, {"input": "Hello.", "mood": "blue"})
    headers = {"Content-Type": "application/json"}
    body = rb'{"input": "a \ud800 b", "response_format": "pcm"}'
    response = await http.post("/v1/audio/speech", content=body, headers=headers)
    assert response.status_code == 200
    assert any(response.content)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, ErrorCode.NOT_FOUND),
        ("GET", "/v1/audio/speech", 405, ErrorCode.METHOD_NOT_ALLOWED),
        ("POST", "/v1/models", 405, ErrorCode.METHOD_NOT_ALLOWED),
    ],
)
async def test_a_wrong_path_is_answered(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: ErrorCode
) -> None:
    """Errors of the web framework use the same envelope as ours."""
    response = await http.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
