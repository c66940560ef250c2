"""Metrics: the values that operators watch and scale by."""

import asyncio
import os
import signal
import time

import httpx
import pytest

from testbed.scripted_time import ScriptedLoop, run_scripted
from testbed.servers import metric_value, scrape, worker_of
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import ErrorMessage
from voiceagent_tts.server.metrics import LoopLag
from voiceagent_tts.server.serve import RunningServer

SENTENCE = "The quick brown fox jumps over the lazy dog. "


async def test_contexts_and_rows_are_gauged(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        contexts = [await wire.open(max_lead_s=0.3) for _ in range(3)]
        for received in contexts:
            await wire.text(received, SENTENCE * 20)
            await wire.until(ClientAudio, received)
        metrics = await scrape(server)
        assert metrics["tts_contexts_active"] == 3
        assert metrics["tts_slots_used"] == 3
        assert metrics["tts_slots"] == 512
        assert metrics["tts_ws_connections"] == 1
        for received in contexts:
            await wire.stop(received)
        worker = worker_of(server)
        await until(lambda: not worker.rows_used, "the rows are free")
        metrics = await scrape(server)
    assert metrics["tts_contexts_active"] == metrics["tts_slots_used"] == 0


async def test_what_was_spoken_is_counted(server: RunningServer) -> None:
    """Characters, audio and the time to the first audio are counted once per context."""
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say(SENTENCE)
        await wire.say("...")
        metrics = await scrape(server)
    assert metrics["tts_chars_total"] == len(SENTENCE) + 3
    assert abs(metrics["tts_audio_seconds_total"] * 1000 - received.audio_ms) <= 1
    assert metrics["tts_time_to_first_audio_seconds_count"] == 1, "silence has no first audio"
    assert metrics['tts_contexts_total{reason="complete"}'] == 2
    assert metrics["tts_audio_discarded_seconds_total"] == 0


async def test_discarded_audio_is_counted(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.start(SENTENCE * 5, max_lead_s=2)
        await wire.stop(received)
        metrics = await scrape(server)
    assert 0 < metrics["tts_audio_discarded_seconds_total"] <= 2.1
    assert metrics["tts_audio_discarded_seconds_total"] <= metrics["tts_audio_seconds_total"]
    assert metrics['tts_contexts_total{reason="cancelled"}'] == 1


async def test_each_worker_reports_its_own_metrics(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say(SENTENCE * 3)
    worker = worker_of(server)
    await until(lambda: worker.stats.audio_samples >= received.audio_ms * 24, "a heartbeat tells")
    await until(lambda: worker.realtime_factor is not None, "two heartbeats with audio")
    metrics = await scrape(server)
    assert metrics['tts_worker_audio_seconds_total{worker="espeak"}'] * 1000 >= received.audio_ms
    assert metrics['tts_worker_busy_seconds_total{worker="espeak"}'] > 0
    assert metrics['tts_worker_realtime_factor{worker="espeak"}'] > 0


async def test_errors_are_counted_by_code(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        await wire.send_raw("{")
        await wire.receive()
    async with httpx.AsyncClient(base_url=server.url) as http:
        await http.post("/v1/audio/speech", json={"input": "Hello.", "voice": "nobody"})
        await http.post("/v1/audio/speech", json={"input": 5})
        await http.get("/nowhere")
    metrics = await scrape(server)
    for code in ("invalid_json", "invalid_voice", "invalid_param", "not_found"):
        assert metrics[f'tts_errors_total{{code="{code}"}}'] == 1


async def test_contexts_of_a_dead_engine_are_errors(server: RunningServer) -> None:
    """A context of a dead engine counts as an error, not as a cancel, and so does what ends it."""
    worker = worker_of(server)
    body = {"input": SENTENCE * 400, "response_format": "pcm"}
    async with (
        Wire.connected(server.websocket_url) as wire,
        httpx.AsyncClient(base_url=server.url) as http,
        http.stream("POST", "/v1/audio/speech", json=body) as response,
    ):
        chunks = response.aiter_bytes()
        await anext(chunks)
        received = await wire.open(max_lead_s=0.3)
        await wire.text(received, SENTENCE * 20)
        await wire.until(ClientAudio, received)
        os.kill(worker.pid, signal.SIGKILL)
        await wire.finish(received)
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in chunks:
                pass
    await until(lambda: not server.state.synthesizer.contexts_active, "both have ended")
    metrics = await scrape(server)
    assert metrics['tts_contexts_total{reason="error"}'] == 2
    assert metrics['tts_contexts_total{reason="cancelled"}'] == 0
    assert metrics['tts_errors_total{code="engine_error"}'] == 2


async def test_no_figure_holds_what_was_said(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open("id-of-a-caller")
        await wire.speak(received, "Xylophone.")
    text = server.state.metrics.render().decode()
    assert "Xylophone" not in text
    assert "id-of-a-caller" not in text


async def test_the_stages_of_a_first_sound_add_up(server: RunningServer) -> None:
    async with Wire.connected(server.websocket_url) as wire:
        await wire.say(SENTENCE)
    metrics = await scrape(server)
    stages = [
        metrics[f'tts_stage_seconds_sum{{stage="{stage}"}}']
        for stage in ("text", "engine", "delivery")
    ]
    assert min(stages) >= 0
    assert abs(sum(stages) - metrics["tts_time_to_first_audio_seconds_sum"]) < 1e-9


async def test_a_cancel_is_timed_to_its_answer_and_to_the_free_row(server: RunningServer) -> None:
    """One cancel of a speaking context is one latency, and one abort of the engine."""
    aborts = "tts_engine_abort_seconds_count"
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(max_lead_s=0.3)
        await wire.text(received, SENTENCE * 20)
        await wire.until(ClientAudio, received)
        await wire.until(ClientAudio, received)
        worker = worker_of(server)
        await until(lambda: worker.rows_used == 1, "the server's own probe is over")
        before = metric_value(server, aborts)
        await wire.stop(received)
        await until(lambda: metric_value(server, aborts) == before + 1, "the row is free")
    metrics = await scrape(server)
    assert metrics["tts_cancel_latency_seconds_count"] == 1
    assert metrics["tts_inter_frame_gap_seconds_count"] >= 1
    assert 'tts_word_lag_seconds_bucket{le="0.0"}' in metrics


async def test_admissions_and_refusals_are_counted(server: RunningServer) -> None:
    """A context that is refused has waited, and is counted by the code of its error."""
    async with Wire.connected(server.websocket_url) as wire:
        await wire.say(SENTENCE)
        await wire.send_raw({"type": "context.open", "context_id": "c", "voice": "nobody"})
        await wire.until(ErrorMessage)
    metrics = await scrape(server)
    assert metrics["tts_admission_wait_seconds_count"] == 2
    assert metrics['tts_contexts_refused_total{code="invalid_voice"}'] == 1
    assert metrics["tts_contexts_waiting"] == 0


async def test_requests_are_counted_by_route(server: RunningServer) -> None:
    """The label is the route's template; paths that clients invent share one label."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        for path in ("/health/live", "/nowhere/1", "/nowhere/2", "/v1/audio/voices/nobody"):
            await http.get(path)
    metrics = await scrape(server)
    assert metrics['tts_http_requests_total{route="/health/live",status="200"}'] == 1
    assert metrics['tts_http_requests_total{route="other",status="404"}'] == 2
    assert not any("nobody" in name or "nowhere" in name for name in metrics)


async def test_the_event_loop_and_the_readiness_are_watched(server: RunningServer) -> None:
    """A blocked event loop shows in its lag, and a drain in the readiness."""
    lag = "tts_event_loop_lag_seconds"
    time.sleep(0.3)  # blocks the loop, as a bug would
    await until(lambda: metric_value(server, f"{lag}_sum") >= 0.1, "the lag is observed")
    assert metric_value(server, "tts_event_loop_longest_stall_seconds") >= 0.1
    assert metric_value(server, "tts_ready") == 1
    server.state.is_draining = True
    assert metric_value(server, "tts_ready") == 0


async def test_what_a_client_does_not_read_is_gauged(server: RunningServer) -> None:
    """Audio for a client that does not read waits in this process, and shows."""
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(max_lead_s=0)
        await wire.text(received, SENTENCE * 100)
        await wire.end(received)
        await until(lambda: metric_value(server, "tts_ws_send_queue_bytes") > 10_000, "audio waits")


async def _longest(stalls: list[tuple[float, float]]) -> list[float]:
    """The longest stall after each of these, which begins so long after the look at the last."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ScriptedLoop)
    lag, longest = LoopLag(lambda stall_s: None), list[float]()
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)  # the measurement begins
    for after_s, length_s in stalls:
        await asyncio.sleep(after_s)
        loop.hold_up(length_s)
        await asyncio.sleep(0.15)
        longest.append(lag.longest_s)
    watching.cancel()
    await asyncio.wait({watching})
    return longest


@pytest.mark.parametrize("after_ms", range(0, 110, 10))
@pytest.mark.parametrize("length_ms", [6, 60, 600])
def test_a_stall_is_measured_in_full(after_ms: int, length_ms: int) -> None:
    """Wherever it begins between two looks, also one that is over before the next."""
    longest = run_scripted(_longest([(after_ms / 1000, length_ms / 1000)]), has_sockets=False)
    assert longest == [pytest.approx(length_ms / 1000)]


def test_the_longest_stall_is_that_of_the_last_minute() -> None:
    """A stall that a longer one follows, or that is a minute old, is not the longest."""
    stalls = [(1, 0.2), (9, 3.0), (10, 0.5), (10, 0.1), (41, 0), (14, 0), (99, 0)]
    longest = run_scripted(_longest(stalls), has_sockets=False)
    assert longest == pytest.approx([0.2, 3.0, 3.0, 3.0, 0.5, 0.1, 0.0])
