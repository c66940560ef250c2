import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service.hop import measure_hop
from benchmarks.service.paced_streams import Load, Plan, Stream, Usage, carry
from benchmarks.service.transport import is_pcm_equal, plan_streams, recorded_pcm, search, summarize
from testbed.servers import StartServer
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio


def test_the_program_ends_with_one_json_object():
    """As a program, the benchmark carries streams and prints its figures as the last line."""
    argv = ["--streams", "3", "--speech-s", "2", "--ramp-s", "0.2", "--max-lead-s", "1"]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.transport", *argv],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["streams"] == 3
    assert result["speech_sum_s"] >= 3 * 2
    assert result["pcm_equal"] is True
    assert result["zmq_hop_us"] > result["in_process_hop_us"] > 0
    assert result["late_p99_ms"] <= result["late_max_ms"]
    assert result["cpu_percent_per_stream"] > 0
    assert {"underruns", "rss_mb_per_stream", "machine", "commit"} <= result.keys()


def _load(*streams: Stream) -> Load:
    usage = {role: Usage(cpu_s=0.5, rss_growth_bytes=2**20) for role in ("server", "worker")}
    return Load(streams, usage | {"client": Usage(1.0, 0)}, (1.0,))


def test_underruns_are_counted_by_stream_and_by_length():
    """Of two streams, the one whose second message is 100 ms late is the one that underruns."""
    second = SAMPLE_RATE_HZ
    smooth = Stream(began=0.0, times=[0.1, 0.2], sizes=[second, second])
    broken = Stream(began=1.0, times=[1.5, 2.6], sizes=[second, second])
    figures = summarize(_load(smooth, broken), max_lead_s=8.0)
    assert (figures["underruns"], figures["underrun_streams"]) == (1, 1)
    assert figures["underrun_ms"] == pytest.approx(100)
    assert figures["late_max_ms"] == pytest.approx(100)
    assert figures["first_audio_p50_ms"] == pytest.approx(300)


def test_cost_is_told_for_each_second_of_speech():
    """2 CPU seconds for 4 seconds of speech are half a core per playing stream."""
    stream = Stream(times=[0.0, 0.1], sizes=[SAMPLE_RATE_HZ, SAMPLE_RATE_HZ])
    figures = summarize(_load(stream, stream), max_lead_s=8.0)
    assert figures["cpu_percent_per_stream"] == pytest.approx(50)
    assert figures["client_cpu_percent_per_stream"] == pytest.approx(25)
    assert figures["rss_mb_per_stream"] == pytest.approx(1)


async def test_a_refused_stream_ends_the_load_with_the_servers_error(start_server: StartServer):
    """A stream that the server refuses ends the load with the server's error."""
    server = await start_server(max_contexts=1)
    with pytest.raises(VoiceAgentError) as raised:
        await carry(server.websocket_url, os.getpid(), [Plan("Hello.", 0.0), Plan("Hello.", 0.0)])
    assert raised.value.code is ErrorCode.TOO_MANY_CONTEXTS


async def test_pcm_is_compared_with_what_the_engine_made(start_server: StartServer):
    """The recording has the complete audio of each context, as its client receives it."""
    assert await is_pcm_equal(["One.", "Two, and three."])
    server = await start_server(watermark=False)
    with recorded_pcm() as made:
        async with TTSClient(server.websocket_url) as client:
            events = [event async for event in client.say("Four.")]
    heard = b"".join(event.pcm for event in events if isinstance(event, ClientAudio))
    assert heard == bytes(made[0])
    with recorded_pcm() as unrecorded:
        pass
    assert unrecorded == []


async def test_the_hop_is_dearer_than_a_call():
    """A frame that goes to another process and back takes longer than a call."""
    hop = await measure_hop(count=20)
    assert hop.zmq_us > hop.in_process_us > 0


def test_streams_are_long_enough_and_begin_within_the_ramp():
    """Arrivals are spread over the ramp and differ with the seed."""
    plans = plan_streams(50, speech_s=10, ramp_s=4, seed=1)
    assert all(0 <= plan.start_s <= 4 for plan in plans)
    assert max(plan.start_s for plan in plans) - min(plan.start_s for plan in plans) > 2
    assert len({plan.text for plan in plans}) > 40
    assert plans != plan_streams(50, speech_s=10, ramp_s=4, seed=2)


@pytest.mark.parametrize("capacity", [100, 101, 777, 3000])
async def test_the_search_ends_just_below_the_capacity(capacity: int):
    """Doubling and bisecting finds the most that is carried, to the resolution, in few loads."""
    tried: list[int] = []

    async def carries(streams: int) -> bool:
        tried.append(streams)
        return streams <= capacity

    found = await search(carries, first=100, resolution=25)
    assert capacity - 25 <= found <= capacity
    assert found in tried
    assert len(tried) <= 12


async def test_the_search_says_where_nothing_is_carried():
    """If even the first load is not carried, the result is 0."""

    async def carries(streams: int) -> bool:
        return False

    assert await search(carries, first=100, resolution=25) == 0
