import contextlib
import json
import tracemalloc

import pytest

from testbed.protocol_ends import (
    client_message,
    ready_server,
    refusal,
    send_opened,
    session_limits,
    speaking_server,
)
from voiceagent_tts.core import Cut
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol import server_connection
from voiceagent_tts.protocol.messages import (
    ContextCut,
    ContextFlush,
    ContextOpen,
    ContextText,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import (
    MAX_HANDLE,
    MAX_TOMBSTONES,
    ServerConnection,
)

# What a client may send.


def test_text_opens_a_context_with_the_sessions_defaults() -> None:
    """Text for an unknown context opens it with what the last `session.update`s said."""
    server = ready_server()
    server.receive('{"type":"session.update","voice":"ryan","speed":1.5}')
    server.receive('{"type":"session.update","speed":0.5}')
    assert server.receive(client_message("text", text="Hi")) == [
        ContextOpen(context_id="c", voice="ryan", speed=0.5),
        ContextText(context_id="c", text="Hi"),
    ]
    assert server.receive(client_message("text", text="")) == [], "it says nothing"
    assert server.receive(client_message("context.open", "d")) == [ContextOpen(context_id="d")]


@pytest.mark.parametrize("ending", ["done", "refused", "over the cap"])
def test_a_spent_id_stays_spent(ending: str) -> None:
    """However a context ended, late text for it never opens another one."""
    server = ready_server(max_contexts=1)
    match ending:
        case "done":
            server.receive(client_message("context.open"))
            server.done("c", "complete", chars=0)
        case "refused":
            refusal(server, client_message("context.open", speed=9))
        case _:
            server.receive(client_message("context.open", "other"))
            error = refusal(server, client_message("text", text="Hi"))
            assert error.code is ErrorCode.TOO_MANY_CONTEXTS
            server.done("other", "complete", chars=0)
    for late in (
        client_message("text", text="Hi"),
        client_message("flush", flush_id=1),
        client_message("end"),
    ):
        assert refusal(server, late).code is ErrorCode.CONTEXT_CLOSED
    assert refusal(server, client_message("context.open")).code is ErrorCode.CONTEXT_EXISTS
    assert server.receive(client_message("cancel")) == []
    assert server.receive(client_message("cut", played_ms=5)) == [
        ContextCut(context_id="c", played_ms=5)
    ]


def test_a_cancelled_context_ends_as_cancelled() -> None:
    """Also where it fails after the answer to its cancel: the client expects nothing else."""
    server = speaking_server()
    server.receive(client_message("cancel"))
    server.cancelled("c", Cut("", "Hi", is_partial=False), "clock")
    [done] = server.done("c", "error", chars=2)
    assert isinstance(done, str) and json.loads(done)["reason"] == "cancelled"


def test_tombstones_are_small() -> None:
    """A client chooses how long its ids are; what a socket keeps of them does not depend on it."""
    server = ServerConnection(session_limits())
    server.draining(deadline_ms=1)  # every open is refused, which spends its id
    ids = [f"{number}" + "😀" * 120 for number in range(MAX_TOMBSTONES + 100)]
    tracemalloc.start()
    for context_id in ids:
        with contextlib.suppress(RefusedMessageError):
            server.receive(client_message("context.open", context_id))
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 64_000
    forgotten = refusal(server, client_message("cancel", ids[99]))
    assert forgotten.code is ErrorCode.CONTEXT_NOT_FOUND
    assert server.receive(client_message("cancel", ids[100])) == []


def test_flush_ids_rise() -> None:
    """A flush id that does not rise is refused; gaps are fine."""
    server = speaking_server()
    for flush_id in (0, 1, 7):
        server.receive(client_message("flush", flush_id=flush_id))
    assert refusal(server, client_message("flush", flush_id=7)).code is ErrorCode.INVALID_PARAM
    assert server.receive(client_message("flush", flush_id=8)) == [
        ContextFlush(context_id="c", flush_id=8)
    ]


def test_cancelling_without_reading_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts that wait for their `done` cannot be piled up by cancelling them."""
    monkeypatch.setattr(server_connection, "MAX_TOMBSTONES", 2)
    server = ServerConnection(session_limits(max_contexts=1))
    for number in range(3):
        server.receive(client_message("context.open", f"{number}"))
        assert server.receive(client_message("cancel", f"{number}"))
        assert server.receive(client_message("cancel", f"{number}")) == []
    assert refusal(server, client_message("context.open", "3")).code is ErrorCode.TOO_MANY_CONTEXTS


def test_handles_are_never_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a socket has used all its handles, it refuses new contexts with `draining`."""
    monkeypatch.setattr(server_connection, "MAX_TOMBSTONES", 1)
    server = ServerConnection(session_limits())
    server.ready(session_id="s", model="m")
    for number in range(MAX_HANDLE):
        server.receive(client_message("context.open", f"{number}"))
        opened = json.loads(*send_opened(server, f"{number}"))
        assert opened["handle"] == number + 1
        server.done(f"{number}", "complete", chars=0)
    assert refusal(server, client_message("context.open", "more")).code is ErrorCode.DRAINING
