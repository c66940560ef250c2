import pytest

from testbed.protocol_ends import ready_server, send_opened, session_limits
from voiceagent_tts.errors import ConnectionLostError, EngineError, OverloadedError
from voiceagent_tts.protocol.messages import ContextOpened, DoneMessage, ReadyMessage
from voiceagent_tts.protocol.refusals import ProtocolError
from voiceagent_tts.protocol.server_connection import ServerConnection
from voiceagent_tts.protocol.socket_router import ContextEvent, SocketRouter


def _connected(*context_ids: str) -> tuple[SocketRouter, ServerConnection]:
    """A router and its server, with these contexts open on both."""
    router, server = SocketRouter(), ServerConnection(session_limits())
    router.handshake(*server.ready(session_id="s", model="m"))
    for context_id in context_ids:
        server.receive(router.connection.open(context_id))
    return router, server


def test_the_handshake_reads_ready() -> None:
    """The first message is `ready`, or the server's reason to refuse the socket."""
    [ready] = ServerConnection(session_limits()).ready(session_id="s", model="m")
    assert isinstance(SocketRouter().handshake(ready), ReadyMessage)
    with pytest.raises(OverloadedError, match="all sockets are in use"):
        SocketRouter().handshake(*ready_server().error(OverloadedError("all sockets are in use")))
    with pytest.raises(ProtocolError, match="ready as the first"):
        SocketRouter().handshake(*ready_server().pong(1))


def test_each_inbox_receives_the_events_of_its_context() -> None:
    """Two contexts share a socket, and neither receives an event of the other."""
    router, server = _connected("a", "b")
    received: dict[str, list[ContextEvent]] = {"a": [], "b": []}
    for context_id, events in received.items():
        router.attach(context_id, events.append)
    for context_id in ("b", "a"):
        router.receive(*send_opened(server, context_id))
    router.receive(*server.audio("a", bytes(2), 0))
    done = router.receive(*server.done("b", "complete", chars=0))
    assert isinstance(received["a"][0], ContextOpened)
    assert [type(event).__name__ for event in received["a"]] == ["ContextOpened", "ClientAudio"]
    assert received["b"][1:] == [done]


def test_a_detached_context_receives_nothing() -> None:
    """`detach` says whether the context was attached, and stops its events."""
    router, server = _connected("a")
    events: list[ContextEvent] = []
    router.attach("a", events.append)
    assert router.detach("a")
    assert not router.detach("a")
    assert isinstance(router.receive(*server.done("a", "complete", chars=0)), DoneMessage)
    assert events == []


def test_a_draining_socket_is_drained_when_its_last_context_is_done() -> None:
    """`draining` ends the use of a socket at once, and its life with the last context."""
    router, server = _connected("a")
    router.attach("a", lambda event: None)
    assert router.is_usable
    router.receive(*server.draining(deadline_ms=1_000))
    assert (router.is_usable, router.is_drained) == (False, False)
    router.receive(*server.done("a", "complete", chars=0))
    assert router.is_drained


def test_a_lost_socket_is_reported_once_to_every_inbox() -> None:
    """Each inbox receives the error once, and the socket stays lost for its first reason."""
    router, _ = _connected("a", "b")
    events: list[ContextEvent] = []
    for context_id in ("a", "b"):
        router.attach(context_id, events.append)
    error = router.loss(1012)
    assert router.lose(error)
    assert not router.lose(ConnectionLostError("again"))
    assert events == [error, error]
    assert router.lost is error
    assert not router.is_usable


def test_a_loss_names_the_close_code_and_the_last_error() -> None:
    """The error explains the close: its meaning, and what the server reported before it."""
    router, server = _connected()
    assert router.loss(None).message == "the socket closed (None, the connection broke)"
    router.receive(*server.error(EngineError("it broke")))
    assert "1011, internal" in router.loss(1011).message
    assert router.loss(1011).message.endswith(": it broke")


def test_a_broken_protocol_is_the_reason_of_the_loss() -> None:
    """What the server did wrong is part of the error that the contexts receive."""
    router, _ = _connected()
    with pytest.raises(ProtocolError):
        router.receive('{"type": "flushed", "context_id": "x", "flush_id": 1, "audio_ms": 0}')
    assert "context 'x' is not open" in router.loss(1002).message
