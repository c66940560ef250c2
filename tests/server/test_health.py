"""Whether the server can speak now: found out by speaking."""

import os
import signal

import httpx

from tests.conftest import StartServer, StartSynthesizer
from tests.waiting import until
from tests.wire import Wire
from voiceagent_tts.server.health import Watchdog
from voiceagent_tts.server.serve import RunningServer


async def test_a_server_that_has_started_is_ready(server: RunningServer) -> None:
    """Readiness, liveness and the summary agree on a server that speaks."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/health/live")).json() == {"status": "alive"}
        assert (await http.get("/health/ready")).json() == {"status": "ready"}
        async with Wire.connected(server.websocket_url) as wire:
            await wire.open(max_lead_s=0)
            await wire.say("Hello.")
            summary = (await http.get("/health")).json()
    assert (summary["is_ready"], summary["is_draining"]) == (True, False)
    assert (summary["sockets"], summary["contexts_active"]) == (1, 1)
    assert summary["workers"]["espeak"]["is_running"]
    assert summary["workers"]["espeak"]["model"].startswith("espeak-ng")


async def test_readiness_follows_the_engine(start_server: StartServer) -> None:
    """A dead engine ends readiness until its successor has really spoken."""
    server = await start_server(watchdog_s=0.3)
    worker = server.shell.synthesizer.supervisors["espeak"].worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    await until(lambda: not server.shell.watchdog.is_healthy, "the hanging engine is noticed")
    async with httpx.AsyncClient(base_url=server.url) as http:
        response = await http.get("/health/ready")
        assert (response.status_code, response.json()["status"]) == (503, "unhealthy")
        assert response.json()["reason"]
        os.kill(worker.pid, signal.SIGKILL)
        await until(lambda: server.shell.watchdog.is_healthy, "the next engine has spoken")
        assert (await http.get("/health/ready")).status_code == 200


async def test_a_probe_is_not_counted(server: RunningServer) -> None:
    """The server's own words are in no figure of what was spoken."""
    await server.shell.watchdog.probe()
    value = server.shell.metrics.registry.get_sample_value
    assert value("tts_audio_seconds_total") == 0
    assert value("tts_time_to_first_audio_seconds_count") == 0


async def test_no_probe_no_health(start_synthesizer: StartSynthesizer) -> None:
    """Before the first synthesis nobody can know, so the answer is no."""
    watchdog = Watchdog(await start_synthesizer(), 60)
    assert not watchdog.is_healthy
    await watchdog.probe()
    assert watchdog.is_healthy
