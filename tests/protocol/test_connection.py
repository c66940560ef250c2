import json
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, Cut, Word, WordTimestamp
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.connection import (
    MAX_HANDLE,
    MAX_RECORDS,
    ClientAudio,
    ClientConnection,
    ServerConnection,
)
from voiceagent_tts.protocol.dialects.dialect import Frames
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    AudioMessage,
    CancelledMessage,
    ContextCancel,
    ContextCut,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextOpened,
    ContextText,
    CutMessage,
    DoneMessage,
    ErrorMessage,
    FlushedMessage,
    Ping,
    PongMessage,
    Prepare,
    ProtocolError,
    ReadyMessage,
    RefusedMessageError,
    SessionLimits,
    WordsMessage,
)


def _limits(**fields: Any) -> SessionLimits:
    return SessionLimits(
        max_text_chars=8_192, context_idle_s=120, max_audio_s=600, max_lead_s=8, **fields
    )


def _message(kind: str, context_id: str = "c", /, **fields: Any) -> str:
    return json.dumps({"type": kind, "context_id": context_id, **fields})


def _server(**limits: Any) -> ServerConnection:
    server = ServerConnection(_limits(**limits))
    server.ready(session_id="s", model="m")
    return server


def _opened(server: ServerConnection, context_id: str = "c") -> Frames:
    return server.opened(context_id, voice="v", language="en", seed=None, queue_ms=0)


def _speaking(**open_fields: Any) -> ServerConnection:
    """A server that has opened context `c` for its client."""
    server = _server()
    server.receive(_message("context.open", **open_fields))
    _opened(server)
    return server


def _pair() -> tuple[ClientConnection, ServerConnection]:
    """Both ends of a socket on which context `c` is open."""
    client, server = ClientConnection(), ServerConnection(_limits())
    client.receive(*server.ready(session_id="s", model="m"))
    server.receive(client.open("c"))
    client.receive(*_opened(server))
    return client, server


def _refusal(server: ServerConnection, data: str | bytes) -> RefusedMessageError:
    with pytest.raises(RefusedMessageError) as caught:
        server.receive(data)
    return caught.value


# What a client may send.


def test_text_opens_a_context_with_the_sessions_defaults() -> None:
    """Text for an unknown context opens it with what the last `session.update`s said."""
    server = _server()
    server.receive('{"type":"session.update","voice":"ryan","speed":1.5}')
    server.receive('{"type":"session.update","speed":0.5}')
    assert server.receive(_message("text", text="Hi")) == [
        ContextOpen(context_id="c", voice="ryan", speed=0.5),
        ContextText(context_id="c", text="Hi"),
    ]
    assert server.receive(_message("context.open", "d")) == [ContextOpen(context_id="d")]


def test_empty_text_is_nothing() -> None:
    """Empty text neither opens a context nor reaches the shell."""
    server = _server()
    assert server.receive(_message("text", text="")) == []
    assert server.contexts == ()
    server.receive(_message("context.open"))
    assert server.receive(_message("text", text="")) == []


def test_an_open_id_cannot_be_opened_again() -> None:
    """A second open is refused, and the first context goes on."""
    server = _speaking()
    error = _refusal(server, _message("context.open"))
    assert (error.code, error.is_open) == (ErrorCode.CONTEXT_EXISTS, False)
    error = _refusal(server, _message("context.open", speed=9))
    assert (error.code, error.is_open) == (ErrorCode.INVALID_PARAM, False)
    assert len(server.refused(error)) == 1
    assert server.receive(_message("text", text="Hi")) == [ContextText(context_id="c", text="Hi")]


@pytest.mark.parametrize("ending", ["done", "refused", "over the cap"])
def test_a_spent_id_stays_spent(ending: str) -> None:
    """However a context ended, late text for it never opens another one."""
    server = _server(max_contexts=1)
    match ending:
        case "done":
            server.receive(_message("context.open"))
            server.done("c", "complete", chars=0)
        case "refused":
            _refusal(server, _message("context.open", speed=9))
        case _:
            server.receive(_message("context.open", "other"))
            _refusal(server, _message("context.open"))
            server.done("other", "complete", chars=0)
    for late in (_message("text", text="Hi"), _message("flush", flush_id=1), _message("end")):
        assert _refusal(server, late).code is ErrorCode.CONTEXT_CLOSED
    assert _refusal(server, _message("context.open")).code is ErrorCode.CONTEXT_EXISTS
    assert server.receive(_message("cancel")) == []
    assert server.receive(_message("cut", played_ms=5)) == [ContextCut(context_id="c", played_ms=5)]


def test_a_refused_open_is_done() -> None:
    """A client that waits for `done` gets one for every id that it tried to open."""
    client = ClientConnection()
    server = ServerConnection(_limits(max_contexts=1))
    client.receive(*server.ready(session_id="s", model="m"))
    server.receive(client.open("a"))
    error = _refusal(server, client.open("b"))
    assert error.code is ErrorCode.TOO_MANY_CONTEXTS
    told, done = (client.receive(data) for data in server.refused(error))
    assert isinstance(told, ErrorMessage)
    assert told.code == "too_many_contexts"
    assert isinstance(done, DoneMessage)
    assert (done.context_id, done.reason) == ("b", "error")
    assert client.record("b").done == done


def test_an_open_that_is_too_long_is_done() -> None:
    """An open that was not read opens nothing, like any other that was refused."""
    server = _server()
    error = _refusal(server, _message("context.open", note="x" * 100_000))
    assert error.code is ErrorCode.MESSAGE_TOO_BIG
    assert [json.loads(frame)["type"] for frame in server.refused(error)] == ["error", "done"]
    assert _refusal(server, _message("text", text="Hi")).code is ErrorCode.CONTEXT_CLOSED


def test_tombstones_are_bounded() -> None:
    """Only the newest ids are remembered, so a socket's memory does not grow with its life."""
    server = ServerConnection(_limits(), max_tombstones=2)
    for context_id in "abc":
        server.receive(_message("context.open", context_id))
        server.done(context_id, "complete", chars=0)
    assert _refusal(server, _message("context.open", "b")).code is ErrorCode.CONTEXT_EXISTS
    assert server.receive(_message("context.open", "a")) == [ContextOpen(context_id="a")]


@pytest.mark.parametrize("kind", ["flush", "end", "cancel", "cut"])
def test_only_text_opens(kind: str) -> None:
    """Every other message about a context that never was is refused."""
    fields = {"flush": {"flush_id": 1}, "cut": {"played_ms": 1}}.get(kind, {})
    error = _refusal(_server(), _message(kind, **fields))
    assert (error.code, error.context_id) == (ErrorCode.CONTEXT_NOT_FOUND, "c")


def test_ended_and_cancelled_contexts_take_no_text() -> None:
    """After `end` or `cancel`, text and flush are refused; the same again is nothing."""
    for kind, message in (
        ("end", ContextEnd(context_id="c")),
        ("cancel", ContextCancel(context_id="c")),
    ):
        server = _speaking()
        assert server.receive(_message(kind)) == [message]
        assert server.receive(_message(kind)) == []
        for late in (_message("text", text="Hi"), _message("flush", flush_id=1)):
            assert _refusal(server, late).code is ErrorCode.CONTEXT_CLOSED


def test_an_ended_context_can_be_cancelled_and_cut() -> None:
    """Barge-in comes when the text has long been sent."""
    server = _speaking()
    server.receive(_message("end"))
    assert server.receive(_message("cut", played_ms=7)) == [ContextCut(context_id="c", played_ms=7)]
    cancel = ContextCancel(context_id="c", played_ms=7)
    assert server.receive(_message("cancel", played_ms=7)) == [cancel]


def test_flush_ids_rise() -> None:
    """A flush id that does not rise is refused; gaps are fine."""
    server = _speaking()
    for flush_id in (0, 1, 7):
        server.receive(_message("flush", flush_id=flush_id))
    assert _refusal(server, _message("flush", flush_id=7)).code is ErrorCode.INVALID_PARAM
    assert server.receive(_message("flush", flush_id=8)) == [
        ContextFlush(context_id="c", flush_id=8)
    ]


def test_a_cancelled_context_leaves_the_cap_at_once() -> None:
    """The next turn opens before the last one's `done`; the socket lives on when it may not."""
    server = _server(max_contexts=2)
    server.receive(_message("context.open", "a"))
    server.receive(_message("context.open", "b"))
    assert _refusal(server, _message("text", "c", text="Hi")).code is ErrorCode.TOO_MANY_CONTEXTS
    server.receive(_message("cancel", "a"))
    assert server.receive(_message("context.open", "d"))
    server.cancelled("a", Cut("", "", is_partial=False), "clock")
    server.done("a", "cancelled", chars=0)
    assert _refusal(server, _message("context.open", "e")).code is ErrorCode.TOO_MANY_CONTEXTS


def test_cancelling_without_reading_is_bounded() -> None:
    """Contexts that wait for their `done` cannot be piled up by cancelling them."""
    server = ServerConnection(_limits(max_contexts=1), max_tombstones=2)
    for number in range(3):
        server.receive(_message("context.open", f"{number}"))
        server.receive(_message("cancel", f"{number}"))
    assert _refusal(server, _message("context.open", "3")).code is ErrorCode.TOO_MANY_CONTEXTS


def test_a_draining_server_opens_nothing() -> None:
    """After `draining` the open contexts go on and new ones are refused, with or without open."""
    server = _speaking()
    server.draining(deadline_ms=30_000)
    assert server.receive(_message("text", text="Hi"))
    assert _refusal(server, _message("context.open", "d")).code is ErrorCode.DRAINING
    assert _refusal(server, _message("text", "e", text="Hi")).code is ErrorCode.DRAINING


def test_handles_are_never_reused() -> None:
    """When a socket has used all its handles, the client is told to open another socket."""
    server = ServerConnection(_limits(), max_tombstones=1)
    server.ready(session_id="s", model="m")
    for number in range(MAX_HANDLE):
        server.receive(_message("context.open", f"{number}"))
        opened = json.loads(*_opened(server, f"{number}"))
        assert opened["handle"] == number + 1
        server.done(f"{number}", "complete", chars=0)
    assert _refusal(server, _message("context.open", "more")).code is ErrorCode.DRAINING


def test_clients_send_no_binary_messages() -> None:
    """A binary message is refused, whatever is in it."""
    assert _refusal(_server(), b'{"type":"ping"}').code is ErrorCode.INVALID_MESSAGE


# What our own shell must get right.


def test_nothing_but_done_follows_cancelled() -> None:
    """Each other message of a cancelled context is a fault of the shell."""
    server = _speaking()
    server.receive(_message("flush", flush_id=1))
    server.receive(_message("cancel"))
    server.cancelled("c", Cut("", "", is_partial=False), "clock")
    for say in (
        lambda: server.audio("c", bytes(2), 0),
        lambda: server.words("c", []),
        lambda: server.flushed("c", 1, 0),
        lambda: server.cancelled("c", Cut("", "", is_partial=False), "clock"),
        lambda: server.done("c", "complete", chars=0),
    ):
        with pytest.raises(AssertionError):
            say()


def test_nothing_precedes_opened() -> None:
    """Audio, words and flushes of a context that is not opened are a fault of the shell."""
    server = _server()
    server.receive(_message("context.open"))
    for say in (
        lambda: server.audio("c", bytes(2), 0),
        lambda: server.words("c", []),
        lambda: server.flushed("c", 1, 0),
    ):
        with pytest.raises(AssertionError):
            say()


@pytest.mark.parametrize(
    ("pcm", "sample_offset"),
    [
        (b"", 0),
        (bytes(3), 0),
        (bytes(MAX_MESSAGE_PCM_BYTES + 2), 0),
        (bytes(2), 1),
    ],
)
def test_bad_audio_is_never_sent(pcm: bytes, sample_offset: int) -> None:
    """Empty audio, half samples, more than 4,096 bytes and gaps are faults of the shell."""
    with pytest.raises(AssertionError):
        _speaking().audio("c", pcm, sample_offset)


def test_cancelled_needs_a_cancel() -> None:
    """`cancelled` and its `done` answer a client; other ends have other reasons."""
    server = _speaking()
    with pytest.raises(AssertionError):
        server.cancelled("c", Cut("", "", is_partial=False), "clock")
    with pytest.raises(AssertionError):
        server.done("c", "cancelled", chars=0)


def test_words_never_go_back() -> None:
    """Words that overlap or go back in time are a fault of the shell."""
    server = _speaking()
    server.words("c", [WordTimestamp(Word("one", 0, 3), 2_400, 4_800, True)])
    for word in (
        WordTimestamp(Word("one", 0, 3), 2_400, None, True),
        WordTimestamp(Word("two", 4, 7), 2_399, None, True),
        WordTimestamp(Word("", 4, 4), 2_400, None, True),
    ):
        with pytest.raises(AssertionError):
            server.words("c", [word])


def test_flushes_are_answered_once_in_order() -> None:
    """Only a flush that came, and only once, may be answered."""
    server = _speaking()
    server.receive(_message("flush", flush_id=3))
    server.flushed("c", 3, 80)
    for flush_id in (3, 4):
        with pytest.raises(AssertionError):
            server.flushed("c", flush_id, 80)


@pytest.mark.parametrize(
    ("encoding", "sample_bytes"),
    [("pcm_s16le", 2), ("pcm_f32le", 4), ("pcm_mulaw", 1), ("pcm_alaw", 1)],
)
@pytest.mark.parametrize("transport", ["binary", "base64"])
def test_positions_count_samples_at_the_output_rate(
    encoding: Any, sample_bytes: int, transport: Any
) -> None:
    """Offsets and `audio_ms` follow the context's own encoding and rate, in both transports."""
    client, server = ClientConnection(), ServerConnection(_limits())
    client.receive(*server.ready(session_id="s", model="m"))
    audio = AudioFormat(encoding=encoding, sample_rate=8_000, transport=transport)
    server.receive(client.open("c", audio=audio))
    client.receive(*_opened(server))
    pcm = bytes(range(80)) * sample_bytes
    for seq in range(2):
        got = client.receive(*server.audio("c", pcm, seq * 80))
        assert got == ClientAudio("c", seq, seq * 80, pcm)
    done = client.receive(*server.done("c", "complete", chars=0))
    assert isinstance(done, DoneMessage)
    assert done.audio_ms == 20


# What a client checks.


def test_the_client_needs_ready_first() -> None:
    """Any other first message but an error is a broken protocol."""
    server = _server()
    with pytest.raises(ProtocolError):
        ClientConnection().receive(*server.pong(1))
    error = ClientConnection().receive(*server.error(EngineError("no engine")))
    assert isinstance(error, ErrorMessage)


@pytest.mark.parametrize("version", ["2.0", "0.9", "", "1x"])
def test_another_major_version_is_refused(version: str) -> None:
    """A client of 1.0 talks to any 1.x server and to no other."""
    ready = json.loads(*ServerConnection(_limits()).ready(session_id="s", model="m"))
    assert isinstance(
        ClientConnection().receive(json.dumps({**ready, "protocol": "1.7"})), ReadyMessage
    )
    with pytest.raises(VoiceAgentError) as caught:
        ClientConnection().receive(json.dumps({**ready, "protocol": version}))
    assert caught.value.code is ErrorCode.VERSION_MISMATCH


def test_the_client_may_talk_before_ready() -> None:
    """Opening a context does not wait for the handshake."""
    client, server = ClientConnection(), _server()
    assert server.receive(client.open("c")) == [ContextOpen(context_id="c", metadata=None)]
    assert server.receive(client.text("c", "Hi")) == [ContextText(context_id="c", text="Hi")]


def test_the_client_keeps_text_and_words() -> None:
    """A record holds what a local cut needs, in samples at 24 kHz."""
    client, server = _pair()
    for delta in ("Hel", "lo", " you"):
        server.receive(client.text("c", delta))
    words = [
        WordTimestamp(Word("Hello", 0, 5), 960, 7_200, True),
        WordTimestamp(Word("you", 6, 9), 7_200, None, False),
    ]
    client.receive(*server.words("c", words))
    record = client.record("c")
    assert (record.text, record.words) == ("Hello you", words)


def test_records_are_bounded() -> None:
    """A client that talks all day remembers the newest contexts only."""
    client, server = ClientConnection(), _server()
    client.receive(*ServerConnection(_limits()).ready(session_id="s", model="m"))
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
        '{"type":"flushed","context_id":"x","flush_id":1,"audio_ms":0}',
        '{"type":"context.opened","context_id":"c","handle":2,"voice":"v","language":null,'
        '"seed":null,"queue_ms":0}',
        '{"type":"done","context_id":"x","reason":"complete","audio_ms":0,"chars":0,'
        '"ttfa_ms":null,"gen_ms":null}',
    ],
)
def test_a_server_out_of_order_is_caught(data: str | bytes) -> None:
    """Gaps, unknown contexts and handles, and times that go back break the protocol."""
    client, _ = _pair()
    with pytest.raises(ProtocolError):
        client.receive(data)


def test_nothing_may_follow_cancelled_or_done_at_the_client() -> None:
    """The client refuses audio after `cancelled`, and everything after `done`."""
    client, server = _pair()
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
    """Unknown message types and binary kinds change nothing."""
    client, _ = _pair()
    assert client.receive(data) is None


def test_a_cut_is_answered_after_done() -> None:
    """The question may come when the reply has been sent long ago."""
    client, server = _pair()
    client.receive(*server.done("c", "complete", chars=0))
    assert server.receive(client.cut("c", 80)) == [ContextCut(context_id="c", played_ms=80)]
    answer = client.receive(*server.cut("c", Cut("a", "b", is_partial=False)))
    assert isinstance(answer, CutMessage)
    assert answer.to_cut() == Cut("a", "b", is_partial=False)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda client: client.open("c"), ErrorCode.CONTEXT_EXISTS),
        (lambda client: client.open("d", speed=3.0), ErrorCode.INVALID_PARAM),
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
    client, _ = _pair()
    with pytest.raises(InvalidRequestError) as caught:
        call(client)
    assert caught.value.code is code
    assert client.record("c").text == ""
    with pytest.raises(InvalidRequestError):
        client.record("d")


def test_an_unknown_option_is_a_type_error() -> None:
    """A misspelt option is not silently ignored."""
    with pytest.raises(TypeError, match="voic"):
        ClientConnection().open("c", voic="x")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("is_message", [True, False])
def test_a_client_stops_opening_when_the_server_drains(is_message: bool) -> None:
    """`draining`, message or error, is obeyed without asking the server again."""
    client, server = _pair()
    if is_message:
        client.receive(*server.draining(deadline_ms=1_000))
    else:
        client.receive(*server.error(OverloadedError("no more", code=ErrorCode.DRAINING), "b"))
    with pytest.raises(VoiceAgentError) as caught:
        client.open("d")
    assert caught.value.code is ErrorCode.DRAINING
    assert server.receive(client.text("c", "Hi"))


def test_prepare_and_ping_reach_the_shell() -> None:
    """Messages about no context pass through, and a pong brings its number back."""
    client, server = _pair()
    assert server.receive(client.prepare(voice="v")) == [Prepare(voice="v")]
    assert server.receive(client.ping(5)) == [Ping(t=5)]
    assert client.receive(*server.pong(5)) == PongMessage(t=5)


# Both ends, back to back.


@dataclass
class _Spoken:
    """What a legal shell knows of one context."""

    text: str = ""
    words: int = 0
    samples: int = 0
    flushes: list[int] = field(default_factory=list[int])
    is_opened: bool = False
    is_cancelling: bool = False
    is_cancelled: bool = False


_ORDER = re.compile(r"o?[awf]*c?d")


class BackToBack(RuleBasedStateMachine):
    """A client and a server in any order of calls, with messages in flight both ways."""

    @initialize(max_contexts=st.integers(1, 3))
    def connect(self, max_contexts: int) -> None:
        self.max_contexts = max_contexts
        self.client = ClientConnection()
        self.server = ServerConnection(_limits(max_contexts=max_contexts))
        self.to_server: deque[str] = deque()
        self.to_client: deque[str | bytes] = deque()
        self.sent_text: dict[str, str] = {}
        self.shell: dict[str, _Spoken] = {}
        self.heard: dict[str, str] = {}
        self.cuts_asked = self.cuts_answered = 0
        self.to_client.extend(self.server.ready(session_id="s", model="m"))

    def _known(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.sent_text)))

    def _spoken(self, data: st.DataObject) -> tuple[str, _Spoken]:
        context_id = data.draw(st.sampled_from(sorted(self.shell)))
        return context_id, self.shell[context_id]

    # The client's side.

    @rule()
    def open(self) -> None:
        context_id = f"c{len(self.sent_text)}"
        try:
            self.to_server.append(self.client.open(context_id))
        except VoiceAgentError as error:
            assert error.code is ErrorCode.DRAINING
            return
        self.sent_text[context_id] = self.heard[context_id] = ""

    @precondition(lambda self: self.sent_text)
    @rule(data=st.data(), what=st.sampled_from(["text", "flush", "end", "cancel", "cut"]))
    def say(self, data: st.DataObject, what: str) -> None:
        context_id = self._known(data)
        arguments: dict[str, Any] = {
            "text": {"text": data.draw(st.sampled_from(["", "one ", "zwei ", "三 "]))},
            "cut": {"played_ms": 80},
        }.get(what, {})
        record = self.client.record(context_id)
        is_closed = record.is_ended or record.done is not None
        try:
            message = getattr(self.client, what)(context_id, **arguments)
        except InvalidRequestError as error:
            assert error.code is ErrorCode.CONTEXT_CLOSED and is_closed
            return
        assert not is_closed or what in ("cancel", "cut")
        self.cuts_asked += what == "cut"
        self.sent_text[context_id] += arguments.get("text", "")
        self.to_server.append(message)

    @precondition(lambda self: self.to_server)
    @rule()
    def server_receives(self) -> None:
        try:
            messages = self.server.receive(self.to_server.popleft())
        except RefusedMessageError as error:
            assert error.code in (
                ErrorCode.TOO_MANY_CONTEXTS,
                ErrorCode.CONTEXT_CLOSED,
                ErrorCode.DRAINING,
            )
            assert error.code is not ErrorCode.TOO_MANY_CONTEXTS or self._is_full()
            self.to_client.extend(self.server.refused(error))
            return
        for message in messages:
            self._act_on(message)

    def _is_full(self) -> bool:
        running = [spoken for spoken in self.shell.values() if not spoken.is_cancelling]
        return len(running) == self.max_contexts

    def _act_on(self, message: Any) -> None:
        match message:
            case ContextOpen(context_id=context_id):
                self.shell[context_id] = _Spoken()
            case ContextText(context_id=context_id, text=text):
                self.shell[context_id].text += text
            case ContextFlush(context_id=context_id, flush_id=flush_id):
                self.shell[context_id].flushes.append(flush_id)
            case ContextCancel(context_id=context_id):
                assert not self.shell[context_id].is_cancelling
                self.shell[context_id].is_cancelling = True
            case ContextCut(context_id=context_id):
                self.to_client.extend(self.server.cut(context_id, Cut("", "", is_partial=False)))
            case _:
                pass

    # The server's side.

    @precondition(lambda self: self.shell)
    @rule(data=st.data(), samples=st.integers(1, MAX_MESSAGE_PCM_BYTES // 2))
    def speak(self, data: st.DataObject, samples: int) -> None:
        context_id, spoken = self._spoken(data)
        if spoken.is_cancelled:
            return
        if not spoken.is_opened:
            spoken.is_opened = True
            self.to_client.extend(_opened(self.server, context_id))
        words = [
            WordTimestamp(Word(match[0], *match.span()), spoken.samples, None, True)
            for match in list(re.finditer(r"\S+", spoken.text))[spoken.words :]
        ]
        spoken.words += len(words)
        if words:
            self.to_client.extend(self.server.words(context_id, words))
        self.to_client.extend(self.server.audio(context_id, bytes(2 * samples), spoken.samples))
        spoken.samples += samples
        for flush_id in spoken.flushes:
            flushed = self.server.flushed(context_id, flush_id, spoken.samples // 24)
            self.to_client.extend(flushed)
        spoken.flushes.clear()

    @precondition(lambda self: self.shell)
    @rule(data=st.data(), reason=st.sampled_from(["complete", "error", "limit", "idle"]))
    def finish(self, data: st.DataObject, reason: Any) -> None:
        context_id, spoken = self._spoken(data)
        if spoken.is_cancelled:
            reason = "cancelled"
        if reason == "error":
            self.to_client.extend(self.server.error(EngineError("it failed"), context_id))
        self.to_client.extend(self.server.done(context_id, reason, chars=len(spoken.text)))
        del self.shell[context_id]

    @precondition(lambda self: any(s.is_cancelling for s in self.shell.values()))
    @rule()
    def answer_cancels(self) -> None:
        for context_id, spoken in self.shell.items():
            if spoken.is_cancelling and not spoken.is_cancelled:
                spoken.is_cancelled = True
                cut = Cut(spoken.text, "", is_partial=False)
                self.to_client.extend(self.server.cancelled(context_id, cut, "clock"))

    @precondition(lambda self: len(self.sent_text) > 5)
    @rule()
    def drain(self) -> None:
        self.to_client.extend(self.server.draining(deadline_ms=1_000))

    @precondition(lambda self: self.to_client)
    @rule()
    def client_receives(self) -> None:
        event = self.client.receive(self.to_client.popleft())
        match event:
            case ContextOpened():
                self.heard[event.context_id] += "o"
            case ClientAudio():
                self.heard[event.context_id] += "a"
            case WordsMessage():
                self.heard[event.context_id] += "w"
            case FlushedMessage():
                self.heard[event.context_id] += "f"
            case CancelledMessage():
                self.heard[event.context_id] += "c"
                assert self.sent_text[event.context_id].startswith(event.text_spoken)
            case DoneMessage():
                self.heard[event.context_id] += "d"
                self._check_done(event)
            case CutMessage():
                self.cuts_answered += 1
            case _:
                pass

    def _check_done(self, done: DoneMessage) -> None:
        record = self.client.record(done.context_id)
        assert _ORDER.fullmatch(self.heard[done.context_id])
        assert (done.reason == "cancelled") == record.is_cancelled
        assert done.audio_ms == record.samples_received // 24
        assert done.chars <= len(self.sent_text[done.context_id])
        assert self.sent_text[done.context_id] == record.text
        for timestamp in record.words:
            word = timestamp.word
            assert record.text[word.char_start : word.char_end] == word.text

    @invariant()
    def the_cap_holds(self) -> None:
        if hasattr(self, "shell"):
            running = [spoken for spoken in self.shell.values() if not spoken.is_cancelling]
            assert len(running) <= self.max_contexts
            assert set(self.server.contexts) == set(self.shell)

    def teardown(self) -> None:
        """When all is delivered and finished, every open had exactly one `done`, last."""
        if not hasattr(self, "shell"):
            return
        while self.to_server:
            self.server_receives()
        self.answer_cancels()
        for context_id, spoken in self.shell.items():
            reason = "cancelled" if spoken.is_cancelled else "complete"
            self.to_client.extend(self.server.done(context_id, reason, chars=len(spoken.text)))
        while self.to_client:
            self.client_receives()
        assert all(_ORDER.fullmatch(heard) for heard in self.heard.values())
        assert self.cuts_answered == self.cuts_asked


TestBackToBack = BackToBack.TestCase
TestBackToBack.settings = settings(max_examples=400, stateful_step_count=50, deadline=None)
