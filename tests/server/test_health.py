"""Health: the server checks that it can speak by speaking."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from unittest.mock import AsyncMock

import httpx
import pytest
from structlog.testing import capture_logs

from testbed.servers import StartServer, StartSynthesizer, worker_of
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.server import serve
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.server.watchdog import Watchdog
from voiceagent_tts.settings.access import Quota
from voiceagent_tts.synthesizer.options import Limits

IMPATIENT = Limits(worker_wait_s=0.01)


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


@pytest.mark.parametrize("scope", [None, *Scope])
async def test_what_callers_do_is_told_to_an_admin_alone(
    scope: Scope | None, start_server: StartServer, tmp_path: Path
) -> None:
    """Without such a key it says whether the server works, and counts nothing of others."""
    made = make_key("one", frozenset({scope or Scope.SPEAK}), Quota())
    (tmp_path / "keys.json").write_text(KeyDocument(keys=(made.key,)).dump())
    server = await start_server(keys=str(tmp_path / "keys.json"))
    headers = {"X-API-Key": made.secret} if scope else {}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        told = (await http.get("/health")).json()
        ready = await http.get("/health/ready")
    assert ready.json() == {"status": "ready"}
    assert ("X-TTS-Slots-Free" in ready.headers) == (scope is Scope.ADMIN)
    counts = {"contexts_active", "sockets"} & told.keys() | {"rows_used"} & set(
        told["workers"]["espeak"]
    )
    assert told["is_ready"] and told["workers"]["espeak"]["is_running"]
    assert len(counts) == (3 if scope is Scope.ADMIN else 0)


async def test_freed_memory_goes_back_while_nobody_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one tenant's burst took is there for others; it is given back again and again."""
    given_back = 0

    def count() -> None:
        nonlocal given_back
        given_back += 1

    for module, name, value in (
        (serve, "_GIVE_BACK_S", 0.001),
        (serve, "give_back_memory", count),
        (serve, "map_large_blocks", lambda: None),
        (serve, "collect_rarely", lambda: None),
        (gc, "freeze", lambda: None),  # other tests go on in this process
        (sys, "setswitchinterval", lambda interval_s: None),
    ):
        monkeypatch.setattr(module, name, value)
    serving = asyncio.create_task(serve.serve(Settings(engine="espeak", port=0)))
    await until(lambda: given_back > 2, "memory is given back")
    os.kill(os.getpid(), signal.SIGTERM)
    await serving


async def test_readiness_follows_the_engine(start_server: StartServer) -> None:
    """A dead engine ends readiness until its successor has spoken."""
    server = await start_server(watchdog_s=0.3)
    worker = worker_of(server)
    os.kill(worker.pid, signal.SIGSTOP)
    await until(lambda: not server.state.watchdog.is_healthy, "the hanging engine is noticed")
    async with httpx.AsyncClient(base_url=server.url) as http:
        response = await http.get("/health/ready")
        assert (response.status_code, response.json()["status"]) == (503, "unhealthy")
        assert response.json()["reason"]
        os.kill(worker.pid, signal.SIGKILL)
        # An answer that is late comes `watchdog_s` after the last probe, and is 503 again.
        async with asyncio.timeout(PATIENCE_S):
            while (await http.get("/health/ready")).status_code != 200:
                pass


async def test_a_probe_is_not_counted(server: RunningServer) -> None:
    await server.state.watchdog.probe()
    value = server.state.metrics.registry.get_sample_value
    assert value("tts_audio_seconds_total") == 0
    assert value("tts_time_to_first_audio_seconds_count") == 0


async def test_no_probe_no_health(start_synthesizer: StartSynthesizer) -> None:
    """The server is not ready before the first probe has spoken."""
    watchdog = Watchdog(await start_synthesizer(), 60)
    assert not watchdog.is_healthy
    await watchdog.probe()
    assert watchdog.is_healthy


async def test_what_is_wrong_is_logged_once(start_synthesizer: StartSynthesizer) -> None:
    synthesizer = await start_synthesizer(IMPATIENT, {"is_silent": True})
    watchdog = Watchdog(synthesizer, 0.1)
    with capture_logs() as logs:
        for _ in range(3):
            await watchdog.probe()
        await synthesizer.close()
        for _ in range(2):
            await watchdog.probe()
    errors = [entry["error"] for entry in logs if entry["event"] == "probe_failed"]
    assert len(errors) == len(set(errors)) == 2


async def test_a_probe_that_fails_unexpectedly_is_followed_by_others(
    start_synthesizer: StartSynthesizer,
) -> None:
    """A defect is a reason to be unhealthy, and no end of the probes."""
    synthesizer = await start_synthesizer()
    synthesizer.before_open.append(AsyncMock(side_effect=[IndexError("a bug"), None]))
    watchdog = Watchdog(synthesizer, 60)
    await watchdog.probe()
    assert watchdog.problem == "the server failed with IndexError"
    await watchdog.probe()
    assert watchdog.is_healthy


async def test_an_engine_that_stays_broken_is_tried_ever_less_often(
    start_synthesizer: StartSynthesizer,
) -> None:
    """After a failure, probes repeat in half a second, then ever later, up to the usual period."""
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 6:
            raise InterruptedError

    synthesizer = await start_synthesizer(IMPATIENT)
    watchdog = Watchdog(synthesizer, 15.0, sleep)
    await watchdog.probe()
    await synthesizer.close()
    with pytest.raises(InterruptedError):
        await watchdog.run()
    assert waits == [5.0, 0.5, 1.0, 2.0, 4.0, 5.0]
