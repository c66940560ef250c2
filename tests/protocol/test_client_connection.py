import json
from dataclasses import replace
from typing import Any

import pytest

from testbed.protocol_ends import connected_ends, ready_server, session_limits
from voiceagent_tts.core import Cut, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import (
    MAX_RECORDS,
    ClientConnection,
    ProtocolError,
    parse_server_message,
)
from voiceagent_tts.protocol.messages import (
    AudioMessage,
    DoneMessage,
    ErrorMessage,
    ReadyMessage,
)
from voiceagent_tts.protocol.server_connection import ServerConnection


def test_the_client_needs_ready_first() -> None:
    """Any other first message but an error is a broken protocol."""
    server = ready_server()
    with pytest.raises(ProtocolError):
        ClientConnection().receive(*server.pong(1))
    error = ClientConnection().receive(*server.error(EngineError("no engine")))
    assert isinstance(error, ErrorMessage)


@pytest.mark.parametrize("field", ["reason", "audio_ms", "chars", "ttfa_ms", "gen_ms"])
def test_a_last_message_that_lacks_a_field_breaks_the_protocol(field: str) -> None:
    """Null says that a time is not known; an absent one is another protocol."""
    done = dict.fromkeys(("audio_ms", "chars", "ttfa_ms", "gen_ms"), 0) | {"reason": "complete"}
    message = {"type": "done", "context_id": "c", **done}
    assert isinstance(parse_server_message(json.dumps(message)), DoneMessage)
    del message[field]
    with pytest.raises(ProtocolError, match=field):
        parse_server_message(json.dumps(message))


@pytest.mark.parametrize("version", ["2.0", "0.9", "", "1x"])
def test_another_major_version_is_refused(version: str) -> None:
    """A client of 1.0 talks to any 1.x server and to no other."""
    ready = json.loads(*ServerConnection(session_limits()).ready(session_id="s", model="m"))
    assert isinstance(
        ClientConnection().receive(json.dumps({**ready, "protocol": "1.7"})), ReadyMessage
    )
    with pytest.raises(VoiceAgentError) as caught:
        ClientConnection().receive(json.dumps({**ready, "protocol": version}))
    assert caught.value.code is ErrorCode.VERSION_MISMATCH


def test_the_client_keeps_the_better_times_of_words() -> None:
    """Words that follow are later than those were at first, and may be earlier than they are."""
    client, server = connected_ends()
    one, two, three = (
        WordTimestamp(Word(text, start, start + 3), ms_to_samples(10 * start), None, 0.3)
        for text, start in (("one", 0), ("two", 4), ("six", 8))
    )
    moved = [replace(one, start_sample=ms_to_samples(5)), replace(two, start_sample=24_000)]
    client.receive(*server.words("c", [one, two]))
    client.receive(*server.words_moved("c", moved))
    client.receive(*server.words("c", [three]))
    assert client.record("c").words == [*moved, three]
    with pytest.raises(ProtocolError):
        client.receive(*server.words_moved("c", [replace(one, word=Word("ten", 12, 15))]))


def test_records_are_bounded() -> None:
    """A client that talks all day remembers the newest contexts only."""
    client, server = ClientConnection(), ready_server()
    client.receive(*ServerConnection(session_limits()).ready(session_id="s", model="m"))
    for number in range(MAX_RECORDS + 1):
        server.receive(client.open(f"{number}"))
        client.receive(*server.done(f"{number}", "complete", chars=0))
    assert client.record("1").done is not None
    with pytest.raises(InvalidRequestError, match="never opened"):
        client.record("0")


@pytest.mark.parametrize(
    "data",
    [
        AudioMessage(1, 1, 0, bytes(2)).encode(),
        AudioMessage(1, 0, 2, bytes(2)).encode(),
        AudioMessage(2, 0, 0, bytes(2)).encode(),
        AudioMessage(1, 0, 0, b"").encode(),
        AudioMessage(1, 0, 0, bytes(3)).encode(),
        b"\x01",
        '{"type":"words","context_id":"x","words":[],"start_ms":[],"end_ms":[],'
        '"char_start":[],"char_end":[],"exact":[]}',
        '{"type":"words","context_id":"c","words":["a","b"],"start_ms":[5,4],"end_ms":[null,null],'
        '"char_start":[0,2],"char_end":[1,3],"exact":[true,true]}',
        '{"type":"words","context_id":"c","words":["a"],"start_ms":[5],"end_ms":[null],'
        '"char_start":[0],"char_end":[1],"exact":[true],"confidence":[1.0,1.0]}',
        '{"type":"done","context_id":"c","reason":"complete","audio_ms":0,"chars":0,'
        '"words_final":{"words":["a"],"start_ms":[5],"end_ms":[null],"char_start":[0],'
        '"char_end":[1],"exact":[]}}',
        '{"type":"flushed","context_id":"x","flush_id":1,"audio_ms":0}',
        '{"type":"context.opened","context_id":"c","handle":2,"voice":"v","language":null,'
        '"seed":null,"queue_ms":0}',
        '{"type":"done","context_id":"x","reason":"complete","audio_ms":0,"chars":0,'
        '"ttfa_ms":null,"gen_ms":null}',
    ],
)
def test_a_server_out_of_order_is_caught(data: str | bytes) -> None:
    """Gaps, unknown contexts and handles, and times that go back break the protocol."""
    client, _ = connected_ends()
    with pytest.raises(ProtocolError):
        client.receive(data)


def test_nothing_may_follow_cancelled_or_done_at_the_client() -> None:
    """The client refuses audio after `cancelled`, and everything after `done`."""
    client, server = connected_ends()
    server.receive(client.cancel("c"))
    client.receive(*server.cancelled("c", Cut("", "", is_partial=False), "clock"))
    with pytest.raises(ProtocolError):
        client.receive(AudioMessage(1, 0, 0, bytes(2)).encode())
    [done] = server.done("c", "cancelled", chars=0)
    client.receive(done)
    with pytest.raises(ProtocolError):
        client.receive(done)


@pytest.mark.parametrize("data", ['{"type":"emotion","context_id":"c"}', b"\x02\x00", b""])
def test_newer_kinds_are_ignored(data: str | bytes) -> None:
    client, _ = connected_ends()
    assert client.receive(data) is None


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda client: client.open("c"), ErrorCode.CONTEXT_EXISTS),
        (lambda client: client.open("d", speed=5.0), ErrorCode.INVALID_PARAM),
        (lambda client: client.open("d\x00"), ErrorCode.INVALID_PARAM),
        (lambda client: client.open("d", metadata={"a": "\ud800"}), ErrorCode.INVALID_PARAM),
        (lambda client: client.text("d", "Hi"), ErrorCode.CONTEXT_NOT_FOUND),
        (lambda client: client.text("c", "\ud800"), ErrorCode.INVALID_PARAM),
        (lambda client: client.text("c", "ü" * 40_000), ErrorCode.MESSAGE_TOO_BIG),
        (lambda client: client.cancel("c", -1), ErrorCode.INVALID_PARAM),
        (lambda client: client.cut("c", 1.5), ErrorCode.INVALID_PARAM),
        (lambda client: client.prepare(voice=""), ErrorCode.INVALID_PARAM),
    ],
)
def test_the_client_refuses_what_the_server_would(call: Any, code: ErrorCode) -> None:
    """A mistake of the application is an error where it is made, and nothing is sent or kept."""
    client, _ = connected_ends()
    with pytest.raises(InvalidRequestError) as caught:
        call(client)
    assert caught.value.code is code
    assert client.record("c").text == ""
    with pytest.raises(InvalidRequestError):
        client.record("d")


@pytest.mark.parametrize("is_message", [True, False])
def test_a_client_stops_opening_when_the_server_drains(is_message: bool) -> None:
    """`draining`, message or error, is obeyed without asking the server again."""
    client, server = connected_ends()
    if is_message:
        client.receive(*server.draining(deadline_ms=1_000))
    else:
        client.receive(*server.error(OverloadedError("no more", code=ErrorCode.DRAINING), "b"))
    with pytest.raises(VoiceAgentError) as caught:
        client.open("d")
    assert caught.value.code is ErrorCode.DRAINING
    assert server.receive(client.text("c", "Hi"))
