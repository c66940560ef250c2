"""Problems that LiveKit's users have reported, group by group, on real sessions.

Group numbers are those of the plugin's acceptance list; issue numbers are those of livekit/agents.
"""

import asyncio
from typing import get_args

import pytest
from livekit.agents import APIConnectOptions, APIStatusError, tts
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString

from testbed.listening import pcm_of
from testbed.livekit_audio import MakeVoice, seconds
from testbed.livekit_conversation import ended, talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, metric_value, silent, until_metric
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.protocol.messages import SampleRate
from voiceagent_tts.server.serve import RunningServer

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
FIVE = "One, two, three, four, five."
ONE_ATTEMPT = APIConnectOptions(max_retry=0, timeout=PATIENCE_S)


async def say(voice: tts.TTS, *texts: str) -> list[tts.SynthesizedAudio]:
    """All audio of one stream."""
    async with voice.stream(conn_options=ONE_ATTEMPT) as stream:
        for text in texts:
            stream.push_text(text)
        stream.end_input()
        return [event async for event in stream]


def pcm(events: list[tts.SynthesizedAudio]) -> bytes:
    """The PCM of a stream."""
    return b"".join(bytes(event.frame.data) for event in events)


# 8: crackle, or voices like chipmunks (#1996, #4244, #4777, #2277).


async def test_group_08_the_samples_are_the_servers(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """No sample is resampled, lost or doubled on the way to the loudspeaker."""
    async with talking(make_voice(await start_server())) as conversation:
        await conversation.spoken(FIVE)
        played = bytes(conversation.loudspeaker.played)
    # espeak speaks a text identically only as the first text of its process.
    assert played == await pcm_of((await start_server()).websocket_url, FIVE)


async def test_group_08_other_rates_last_as_long(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The declared rate is the true one, also behind a fallback that resamples."""

    async def duration_s(voice: tts.TTS, rate_hz: int) -> float:
        events = await say(voice, "I can do that.")
        assert {event.frame.sample_rate for event in events} == {rate_hz}
        return sum(event.frame.duration for event in events)

    expected_s = await duration_s(make_voice(served), 24_000)
    for rate_hz in get_args(SampleRate):
        voice = make_voice(served, sample_rate=rate_hz)
        assert await duration_s(voice, rate_hz) == pytest.approx(expected_s, abs=0.02)
    both = tts.FallbackAdapter([make_voice(served), make_voice(served, sample_rate=48_000)])
    assert await duration_s(both, 48_000) == pytest.approx(expected_s, abs=0.05)
    await both.aclose()


# 9: the output drops the first audio (#5158, #3161).


async def test_group_09_silence_ahead_is_counted(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Word times account for silence before the reply."""
    (plain,) = _times(await say(make_voice(served), "Hello."))
    events = await say(make_voice(served, leading_silence_ms=400), "Hello.")
    assert pcm(events).startswith(bytes(SAMPLE_RATE_HZ * 4 // 10 * BYTES_PER_SAMPLE))
    (padded,) = _times(events)
    assert seconds(padded.start_time) > seconds(plain.start_time)
    assert padded.end_time == pytest.approx(seconds(plain.end_time) + 0.4, abs=0.05)


def _times(events: list[tts.SynthesizedAudio]) -> list[TimedString]:
    return [
        piece
        for event in events
        for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    ]


# 10: "no audio frames were pushed" (#4171, #3306, js#1454).


@pytest.mark.parametrize("text", ["...", "🙂", "*", "\u200b"])
async def test_group_10_text_without_sound_is_no_failure(
    served: ServerProcess, make_voice: MakeVoice, text: str
) -> None:
    """A reply without speakable text is a short silence, and is committed."""
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        assert await conversation.spoken(text) == text
        assert await conversation.spoken("Yes.") == "Yes."
        assert not conversation.errors


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
async def test_group_10_blank_text_needs_no_server(make_voice: MakeVoice, text: str) -> None:
    """Blank text opens no connection."""
    voice = make_voice("ws://127.0.0.1:9/v1/tts/ws")
    assert await say(voice, text) == []
    assert await say(voice) == []


# 11: short replies wait for more text (#3798, #2713, #2892).


async def test_group_11_a_sentence_is_spoken_before_the_next_token(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`Hi!` is spoken while the LLM is still thinking, and the metrics have the time of sending.

    LiveKit's own markdown filter holds the `!` back until the next token arrives.
    """
    go_on = asyncio.Event()
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        handle = conversation.reply("Hi!", go_on, " There.")
        await conversation.played(0.1)
        go_on.set()
        assert await ended(handle) == "Hi! There."
        (message,) = [item for item in handle.chat_items if item.type == "message"]
        assert message.metrics.get("llm_node_ttfs", 0) > 0
        assert message.metrics.get("tts_node_ttfb", 0) > 0


# 12: wrong or missing time to first byte (#6300, #1431, #2885).


async def test_group_12_time_to_first_byte_is_the_wires(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """TTFB matches the wire: it starts when the text is sent, not when the stream is made."""
    server = await start_server(throttle={"first_audio_s": 0.4})

    async def first_audio_s() -> float:
        return metric_value(server, "tts_time_to_first_audio_seconds_sum")

    async def difference_s() -> float:
        go_on, before_s = asyncio.Event(), await first_audio_s()
        voice = make_voice(server)
        async with talking(voice) as conversation:
            await until(lambda: voice.is_connected, "the session has connected")
            handle = conversation.reply(" ", go_on, "Yes.")
            await asyncio.sleep(0.3)  # the LLM's time, which is not part of the time to first byte
            go_on.set()
            await ended(handle)
            (metric,) = conversation.metrics
        assert metric.connection_reused and metric.acquire_time == 0.0
        assert metric.characters_count == len(" Yes.")
        await until_metric(server, "tts_ws_connections", 0)
        return metric.ttfb - (await first_audio_s() - before_s)

    assert abs(await undisturbed(difference_s)) < 0.1


async def test_group_12_a_cold_turn_reports_how_long_it_took_to_connect(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`acquire_time` and `connection_reused` distinguish a cold reply from a warm one."""
    voice = make_voice(served)
    reports: list[TTSMetrics] = []
    voice.on("metrics_collected", reports.append)
    await say(voice, "Yes.")
    await say(voice, "Yes.")
    assert [report.connection_reused for report in reports] == [False, True]
    assert reports[0].acquire_time > 0 == reports[1].acquire_time


# 13: bursts slower than real time (#3433, #3438, #3604).


@pytest.mark.alone
async def test_group_13_sixty_four_replies_at_once_have_no_gap(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """All replies share one socket, and the audio of each one has no gap."""
    voice = make_voice(server)
    loop = asyncio.get_running_loop()

    async def watch(stalls_s: list[float]) -> None:
        while True:
            started = loop.time()
            await asyncio.sleep(0.005)
            stalls_s.append(loop.time() - started - 0.005)

    async def underrun_s() -> float:
        clock = PlayoutClock()
        async with voice.stream(conn_options=ONE_ATTEMPT) as stream:
            stream.push_text("Yes, of course.")
            stream.end_input()
            async for event in stream:
                clock.send(event.frame.samples_per_channel, loop.time())
        assert clock.sent_samples
        return clock.underrun_s

    async def listen() -> tuple[float, float]:
        stalls_s = [0.0]
        watching = asyncio.create_task(watch(stalls_s))
        try:
            underruns_s = await asyncio.gather(*(underrun_s() for _ in range(64)))
        finally:
            watching.cancel()
        return max(underruns_s), max(stalls_s)

    longest_underrun_s, longest_stall_s = await undisturbed(listen)
    assert longest_underrun_s <= 0.02 + longest_stall_s


async def test_group_13_what_cannot_be_spoken_is_refused_before_any_sound(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Replies beyond the limit get a retryable error; the others are spoken."""
    server = await start_server(max_contexts=4, throttle={"rtf": 0.5})
    voice = make_voice(server)
    results = await asyncio.gather(
        *(say(voice, COUNTING) for _ in range(6)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 2
    for error in refused:
        assert isinstance(error, APIStatusError)
        assert error.status_code == 429 and error.retryable


# 14: one bad turn kills the session (#3500, js#2399, #6152).


async def test_group_14_a_fallback_takes_over_before_any_sound(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """A fallback leaves an overloaded server before any audio is played."""
    full, free = await start_server(max_contexts=1), await start_server()
    first = make_voice(full)
    async with first.stream() as holding:
        holding.push_text("I keep ")
        await until_metric(full, "tts_contexts_active", 1)
        both = tts.FallbackAdapter([first, make_voice(free)], max_retry_per_tts=0)
        assert both.capabilities.aligned_transcript
        async with talking(both) as conversation:
            assert await conversation.spoken(FIVE) == FIVE
        assert metric_value(free, "tts_ws_accepted_total") == 1


async def test_group_14_a_bad_voice_fails_its_turn_only(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """A request that cannot succeed is not retried, and the session continues."""
    voice = make_voice(served, voice="nobody")
    async with talking(voice) as conversation:
        assert await conversation.spoken("Yes.") == ""
        (error,) = conversation.errors
        assert isinstance(error.error, APIStatusError)
        assert error.error.status_code == 400 and not error.recoverable
        voice.update_options(voice="default")
        assert await conversation.spoken("Yes.") == "Yes."


# 15: a new voice starts a turn late, or cuts the old one (#3500, #4412).


async def test_group_15_a_new_voice_speaks_from_the_next_reply_on(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """A reply that has started ends in the old voice."""
    voice = make_voice(await start_server())
    async with talking(voice) as conversation:
        handle = conversation.reply(FIVE)
        await conversation.played(0.2)
        voice.update_options(voice="en-gb+f3")
        await ended(handle)
        first = bytes(conversation.loudspeaker.played)
        await conversation.spoken(FIVE)
        second = bytes(conversation.loudspeaker.played)
    reference = await start_server()
    assert first == await pcm_of(reference.websocket_url, FIVE)
    assert second == await pcm_of(reference.websocket_url, FIVE, voice="en-gb+f3")


# 16: plugins for other services, in test_stock_plugins.py.


# 17: a pause before the first audio (#5038), and wasted audio (#2981).


async def test_group_17_a_pause_before_the_first_sound_loses_nothing(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The plugin does not see the pause; the reply waits and is complete."""
    server = await start_server()
    async with talking(make_voice(server)) as conversation:
        output = conversation.session.output.audio
        assert output is not None
        output.pause()
        with silent(server):
            handle = conversation.reply(FIVE)
            # LiveKit resumes the output once, when it begins to forward the reply.
            await until(lambda: not conversation.loudspeaker.is_paused, "the output is resumed")
            output.pause()
            await until_metric(server, "tts_contexts_active", 1)
        await until_metric(server, "tts_contexts_active", 0)
        assert conversation.loudspeaker.played_s == 0
        output.resume()
        assert await ended(handle) == FIVE


async def test_group_17_a_short_lead_wastes_little_audio(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """With a short lead, an interruption wastes little audio, however long the text is."""
    server = await start_server()
    async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
        await conversation.cut(0.5, COUNTING * 5)
        await until_metric(server, "tts_contexts_active", 0)
        assert metric_value(server, "tts_audio_discarded_seconds_total") < 3.0
