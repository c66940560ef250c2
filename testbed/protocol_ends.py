"""Build both ends of a `tts.v1` socket without the socket, in the states that tests need."""

import json
from typing import Any, cast

import pytest

from voiceagent_tts.protocol.client_connection import ClientConnection
from voiceagent_tts.protocol.messages import SessionLimits
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import ServerConnection


def session_limits(**fields: Any) -> SessionLimits:
    return SessionLimits(
        max_text_chars=8_192, context_idle_s=120, max_audio_s=600, max_lead_s=8, **fields
    )


def client_message(kind: str, context_id: str = "c", /, **fields: Any) -> str:
    return json.dumps({"type": kind, "context_id": context_id, **fields})


def ready_server(**limits: Any) -> ServerConnection:
    server = ServerConnection(session_limits(**limits))
    server.ready(session_id="s", model="m")
    return server


def send_opened(server: ServerConnection, context_id: str = "c") -> list[str]:
    opened = server.opened(context_id, voice="v", language="en", seed=None, queue_ms=0)
    return cast("list[str]", opened)  # a server of tts.v1 sends text


def speaking_server(**open_fields: Any) -> ServerConnection:
    server = ready_server()
    server.receive(client_message("context.open", **open_fields))
    send_opened(server)
    return server


def connected_ends() -> tuple[ClientConnection, ServerConnection]:
    client, server = ClientConnection(), ServerConnection(session_limits())
    client.receive(*cast("list[str]", server.ready(session_id="s", model="m")))
    server.receive(client.open("c"))
    client.receive(*send_opened(server))
    return client, server


def refusal(server: ServerConnection, data: str | bytes) -> RefusedMessageError:
    with pytest.raises(RefusedMessageError) as caught:
        server.receive(data)
    return caught.value
