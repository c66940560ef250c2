"""A defect of the server is logged by its kind and place; its message may quote the text."""

import asyncio

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosedError

from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.server.held import RecentTexts
from voiceagent_tts.server.serve import RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "the words of a caller"


def fail(*_: object) -> bytes:
    raise ValueError(SECRET)


async def test_a_route_that_fails_is_answered_and_logged_without_its_message(
    http: httpx.AsyncClient,
    shared_server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer and the line of the failure have the id of the request."""
    metrics = shared_server.state.metrics
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(metrics, "render", fail)
        answer = await http.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    failed, request = logs
    assert (failed["event"], failed["problem"]) == ("server_failed", "ValueError")
    assert (request["event"], request["status"], request["code"]) == (
        "http_request",
        500,
        "internal",
    )
    assert failed["request_id"] == request["request_id"] == answer.headers["X-Request-Id"]
    assert "fail" in failed["calls"] and SECRET not in answer.text + str(logs) + caplog.text
    assert metrics.registry.get_sample_value("tts_errors_total", {"code": "internal"}) == 1


async def test_a_socket_that_fails_is_closed_and_logged_without_its_message(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(RecentTexts, "keep", fail)
    with capture_logs() as logs:
        with pytest.raises(ConnectionClosedError) as closed:
            async with Wire.connected(shared_server.websocket_url) as wire:
                await wire.say("Hello.", language="en")
        await until(lambda: not shared_server.state.sessions, "the server has noticed")
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011
    (failed,) = [line for line in logs if line["event"] == "server_failed"]
    assert failed["problem"] == "ValueError" and failed["session_id"]
    assert SECRET not in str(logs) + caplog.text


async def test_a_callback_that_fails_is_logged_without_its_message(
    shared_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """No request is told, as none is served there."""
    with capture_logs() as logs:
        asyncio.get_running_loop().call_soon(fail)
        await until(lambda: bool(logs), "it is logged")
    assert (logs[0]["event"], logs[0]["problem"]) == ("server_failed", "ValueError")
    assert "fail" in logs[0]["calls"] and SECRET not in str(logs) + caplog.text
