"""The plugin's options, voices, audio, metrics and package, as LiveKit's own tests ask for them."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest
from livekit.agents import (
    NOT_GIVEN,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    tts,
)
from livekit.agents.metrics import TTSMetrics
from livekit.agents.tts import FallbackAdapter
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT

from testbed.listening import pcm_of, words_of
from testbed.livekit_conversation import MakeVoice, check_frames, ended, talking
from testbed.scripted_server import ScriptedServer, whole
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, metric_value, until_metric
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.core import WordTimestamp, samples_to_ms
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError
from voiceagent_tts.protocol.messages import AudioFormat, SampleRate
from voiceagent_tts.server.serve import RunningServer

ROOT = Path(__file__).parents[3]

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."

FIVE = "One, two, three, four, five."

ONE_ATTEMPT = APIConnectOptions(max_retry=0, timeout=PATIENCE_S)

TEXT = "I checked your booking. The train leaves at nine, and your seat is by the window."


def reports_of(voice: tts.TTS) -> list[TTSMetrics]:
    """What a TTS reports from now on."""
    reports: list[TTSMetrics] = []
    voice.on("metrics_collected", reports.append)
    return reports


async def say(voice: tts.TTS, *texts: str) -> list[tts.SynthesizedAudio]:
    """All audio of one stream."""
    async with voice.stream(conn_options=ONE_ATTEMPT) as stream:
        for text in texts:
            stream.push_text(text)
        stream.end_input()
        return [event async for event in stream]


# Audio and words.


async def test_the_samples_are_the_servers(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """No sample is resampled, lost or doubled on the way to the loudspeaker."""
    async with talking(make_voice(await start_server())) as conversation:
        await conversation.spoken(FIVE)
        played = bytes(conversation.loudspeaker.playback.pcm)
    # espeak speaks a text identically only as the first text of its process.
    assert played == await pcm_of((await start_server()).websocket_url, FIVE)


async def test_other_rates_last_as_long(served: ServerProcess, make_voice: MakeVoice) -> None:
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


@pytest.mark.parametrize("text", ["...", "🙂"])
async def test_text_without_sound_is_no_failure(
    served: ServerProcess, make_voice: MakeVoice, text: str
) -> None:
    """A reply without speakable text is a short silence, and is committed."""
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        assert await conversation.spoken(text) == text
        assert await conversation.spoken("Yes.") == "Yes."
        assert not conversation.errors


async def test_a_reply_that_cannot_be_spoken_is_a_failure_and_not_in_the_history(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The English voice has no sound for these digits."""
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        assert await conversation.spoken("९८७") == ""
        (error,) = conversation.errors
        assert "text_unspeakable" in str(error.error)
        assert await conversation.spoken("Yes.") == "Yes."


@pytest.mark.parametrize("text", ["", "\n\n"])
async def test_blank_text_needs_no_server(make_voice: MakeVoice, text: str) -> None:
    """Blank text opens no connection."""
    voice = make_voice("ws://127.0.0.1:9/v1/tts/ws")
    assert await say(voice, text) == []
    assert await say(voice) == []


async def test_a_sentence_is_spoken_before_the_next_token(
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


async def test_a_flush_speaks_what_is_there(served: ServerProcess, make_voice: MakeVoice) -> None:
    """A flush speaks text without the end of a sentence or of the input."""
    voice = make_voice(served, max_buffer_delay_ms=3000)
    async with voice.stream() as stream:
        stream.push_text("And then")
        stream.flush()
        assert (await anext(stream)).frame.duration > 0
        stream.end_input()
        assert [event.is_final async for event in stream][-1]


async def test_words_outside_of_a_session_are_not_held_back(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """They come with their audio as it arrives; the event `words` has the true times before."""
    expected = await words_of(served.websocket_url, COUNTING, voice="default", language="en")
    voice, told, loop = make_voice(served), list[WordTimestamp](), asyncio.get_running_loop()
    voice.on("words", lambda context_id, words: told.extend(words))
    started = loop.time()
    async with voice.stream() as stream:
        stream.push_text(COUNTING)
        stream.end_input()
        frames = [event.frame async for event in stream]
    assert 4 < sum(frame.duration for frame in frames) > 2 * (loop.time() - started)
    assert [word.word for word in told] == [word.word for word in expected]
    assert told[0].is_exact
    pieces = [
        piece for frame in frames for piece in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    ]
    assert pieces and {piece.confidence for piece in pieces if piece.strip()} == {1.0}


async def test_word_times_count_in_the_reply(make_voice: MakeVoice) -> None:
    """Behind its leading silence, and on from where a server context broke off."""
    lost = EngineError("the engine process has ended")
    rest = whole(2, word_ms=200)
    first = replace(rest, end_s=0.1, failure=lost)
    told: list[tuple[str, WordTimestamp]] = []
    async with ScriptedServer(rest, [first]).running() as server:
        voice = make_voice(server.addresses["ws"], leading_silence_ms=500)
        voice.on("words", lambda context_id, words: told.extend((context_id, w) for w in words))
        async with voice.stream() as stream:
            stream.push_text("One two three four.")
            stream.end_input()
            audio_s = sum([event.frame.duration async for event in stream])
        await voice.aclose()
    text = [(each.word.text, each.word.char_start) for _, each in told]
    assert text == [("One", 0), ("two", 4), ("three", 8), ("four.", 14)]
    starts_ms = [samples_to_ms(each.start_sample) for _, each in told]
    assert starts_ms == [500, 700, 900, 1_100]
    assert audio_s == pytest.approx(1.3)
    assert len({context_id for context_id, _ in told}) == 1


async def test_a_new_voice_speaks_from_the_next_reply_on(make_voice: MakeVoice) -> None:
    """A reply that has started ends in the old voice (#3500, #4412)."""
    slow = replace(whole(3), end_s=0.5)
    async with ScriptedServer(slow).running() as server:
        voice = make_voice(server.addresses["ws"])
        async with talking(voice) as conversation:
            handle = conversation.reply("One two three.")
            await conversation.played(0.2)
            voice.update_options(voice="en-gb+f3")
            assert await ended(handle) == "One two three."
            await conversation.spoken("One two three.")
        assert [each.voice for each in server.opened] == ["default", "en-gb+f3"]


async def test_a_handler_of_words_that_fails_ends_no_reply(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Whatever it raises: LiveKit passes a `TypeError` on."""
    voice = make_voice(served)
    voice.on("words", lambda context_id, words: words + context_id)
    async with voice.stream() as stream:
        stream.push_text(COUNTING)
        stream.end_input()
        assert sum([event.frame.duration async for event in stream]) > 4


async def test_lexicon_and_markup_leave_the_history_verbatim(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The history has what the LLM wrote, tags included."""
    text = 'Use nginx in New York. <break time="200ms"/> The code is <spell>A7-42X</spell>, go.'
    voice = make_voice(served, lexicon={"nginx": "engine x", "New York": "Noo Yawk"}, markup=True)
    words: list[WordTimestamp] = []
    voice.on("words", lambda _, more: words.extend(more))
    async with talking(voice) as conversation:
        assert await conversation.spoken(*text.partition("New")) == text
    assert "New York." in [each.word.text for each in words]
    voice.update_options(markup=False, lexicon=None)
    assert voice.options.open_options().get("markup") is False


@pytest.mark.parametrize(
    ("options", "is_aligned"),
    [
        ({}, True),
        ({"aligner": "off"}, False),
        ({"aligner": "native", "throttle": {"without_words": True}}, False),
        ({"aligner": "online", "throttle": {"without_words": True}}, True),
    ],
)
async def test_words_are_aligned_where_the_server_finds_their_times(
    start_server: StartServer, make_voice: MakeVoice, options: dict[str, Any], is_aligned: bool
) -> None:
    """The plugin says so to LiveKit; of a server whose times are estimates, it does not.

    Until a server has answered, it expects one that finds them, as servers do by default.
    """
    voice = make_voice(await start_server(**options))
    early = FallbackAdapter([voice])  # LiveKit's adapter asks once, when it is made
    assert voice.capabilities.aligned_transcript and early.capabilities.aligned_transcript
    await voice.acquire(5.0)
    late = FallbackAdapter([voice])
    assert voice.capabilities.aligned_transcript == is_aligned
    assert late.capabilities.aligned_transcript == is_aligned


async def test_a_warning_of_the_server_is_logged_once(
    served: ServerProcess, make_voice: MakeVoice, caplog: pytest.LogCaptureFixture
) -> None:
    """It says which option has no effect; it does not come again with the next reply."""
    voice = make_voice(served, instruct="whisper")
    for _ in range(2):
        assert (await voice.synthesize("One.").collect()).duration > 0.1
    warnings = [text for text in caplog.messages if text.startswith("instruct_ignored: ")]
    assert len(warnings) == 1
    assert "`instruct` has no effect" in warnings[0]


async def test_a_refused_voice_is_logged_with_the_cure(
    served: ServerProcess, make_voice: MakeVoice, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's message says which voices there are."""
    make_voice(served, voice="nosuch").prewarm()
    refused = "the server refused a message: invalid_voice: expected "
    await until(lambda: any(text.startswith(refused) for text in caplog.messages), "the log")


# Metrics.


async def test_synthesize(served: ServerProcess, make_voice: MakeVoice) -> None:
    """A whole text yields audio with one request and one metrics report."""
    voice = make_voice(served)
    reports = reports_of(voice)
    async with voice.synthesize(TEXT) as stream:
        events = [event async for event in stream]
    check_frames(events)
    (report,) = reports
    assert report.characters_count == len(TEXT) and not report.streamed
    seconds = sum(event.frame.duration for event in events)
    assert report.audio_duration == pytest.approx(seconds)
    assert report.request_id == events[0].request_id
    assert report.metadata is not None
    assert report.metadata.model_provider == "voiceagent-tts"
    assert (report.metadata.model_name or "").startswith("espeak")


async def test_stream(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Text at the pace of a language model yields one segment and one metrics report."""
    voice = make_voice(served)
    reports = reports_of(voice)
    async with voice.stream() as stream:

        async def write() -> None:
            for word in TEXT.split(" "):
                stream.push_text(word + " ")
                await asyncio.sleep(1 / 30)
            stream.flush()
            stream.end_input()

        writing = asyncio.create_task(write())
        events = [event async for event in stream]
        await writing
    check_frames(events)
    assert events[0].segment_id
    (report,) = reports
    assert report.streamed and not report.cancelled
    assert report.segment_id == events[0].segment_id


async def test_time_to_first_byte_is_the_wires(
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


async def test_a_cold_turn_reports_how_long_it_took_to_connect(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`acquire_time` and `connection_reused` distinguish a cold reply from a warm one."""
    voice = make_voice(served)
    reports = reports_of(voice)
    await say(voice, "Yes.")
    await say(voice, "Yes.")
    assert [report.connection_reused for report in reports] == [False, True]
    assert reports[0].acquire_time > 0 == reports[1].acquire_time


# Voices.


async def test_voices_are_listed(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Each voice has an id and the languages that it speaks."""
    voices = await make_voice(served).list_voices()
    assert "default" in [voice.id for voice in voices]
    assert all("en" in voice.languages for voice in voices if voice.id == "default")
    with pytest.raises(APIError):
        await make_voice("ws://127.0.0.1:9").list_voices()


@pytest.mark.parametrize("body", ["[]", "no JSON", '{"voices": [{"id": "nova"}]}', '{"voices": 5}'])
async def test_voices_of_another_server_are_an_api_error(make_voice: MakeVoice, body: str) -> None:
    """An agent that handles LiveKit's errors handles a wrong address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n{body}".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        place = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(APIError, match=f"{place} has no list of voices") as raised:
            await make_voice(f"ws://{place}").list_voices()
        assert not raised.value.retryable


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("ws://127.0.0.1:{}/voice/v1/tts/ws", b"GET /voice/v1/audio/voices HTTP/1.1\r\n"),
        ("http://127.0.0.1:{}", b"GET /v1/audio/voices HTTP/1.1\r\n"),
        ("https://127.0.0.1:{}", b"\x16\x03\x01"),
    ],
)
async def test_voices_are_requested_from_the_same_server(
    make_voice: MakeVoice, url: str, asked: bytes
) -> None:
    """The voices URL uses the same proxy and, for `wss`, encryption: no key is sent in clear."""
    begun: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(await reader.readexactly(len(asked)))
        writer.transport.abort()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        voice = make_voice(url.format(listener.sockets[0].getsockname()[1]))
        with pytest.raises(APIError):
            await voice.list_voices()
    assert set(begun) == {asked}


# Options.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sample_rate": 12345}, "sample_rate: .*, got 12345"),
        ({"extra_headers": {"X": 5}}, "extra_headers: .* as X, got int"),
        ({"http_session": 5}, "http_session: .*, got int"),
        ({"model": 5}, "model: expected a string, got int"),
        ({"language": "klingon"}, "expected a language among .*'klingon'"),
        ({"output_latency_s": math.inf}, "output_latency_s: expected 0 or more, got inf"),
        ({"heartbeat_s": 0}, "heartbeat_s: expected a number above 0, got 0"),
        ({"leading_silence_ms": -5}, "leading_silence_ms: expected 0 or more, got -5"),
        ({"speed": 9.0}, "speed: .*less than or equal to 4; got 9"),
        ({"max_buffer_delay_ms": 9000}, "max_buffer_delay_ms: .*; got 9000"),
    ],
)
def test_wrong_options_are_refused_where_they_are_given(
    options: dict[str, Any], sentence: str
) -> None:
    """Not in the first reply, which would be silent."""
    with pytest.raises(InvalidRequestError, match=sentence) as caught:
        TTS(**options)
    assert caught.value.code in (ErrorCode.INVALID_PARAM, ErrorCode.INVALID_LANGUAGE)


def test_every_option_of_a_context_is_one_of_the_plugin() -> None:
    """What a server learns to accept needs no change here; what it does not know is refused."""
    voice = TTS(cache=False, strict_language=True, instruct=None)
    voice.update_options(idle_s=20.0)
    chosen = {"cache": False, "strict_language": True, "idle_s": 20.0}
    assert voice.options.open_options() == chosen | {"audio": AudioFormat()}
    for wrong in ("vocie", "audio", "timestamps"):
        with pytest.raises(TypeError, match=f"no option {wrong}"):
            TTS(**{wrong: "x"})
        with pytest.raises(TypeError, match=f"no option {wrong}"):
            voice.update_options(**{wrong: "x"})


def test_an_option_that_is_not_given_is_the_servers_choice() -> None:
    """So is a language that is to be detected."""
    voice = TTS(speed=NOT_GIVEN, voice=NOT_GIVEN, language="auto")
    assert voice.options.open_options() == {"audio": AudioFormat()}


def test_a_model_is_a_name_in_metrics() -> None:
    """As LiveKit's other plugins take it; the voice decides which model speaks."""
    voice = TTS(model="qwen3-tts")
    assert voice.model == "qwen3-tts"
    voice.update_options(model="other")
    assert voice.model == "other"
    assert "model" not in voice.options.open_options()


def test_a_wrong_change_changes_nothing() -> None:
    """The reply after it is spoken as before."""
    voice = TTS(speed=1.5)
    for wrong in ({"speed": 9.0}, {"language": "klingon"}, {"model": 5}):
        with pytest.raises(InvalidRequestError, match="speed: |language|model: "):
            voice.update_options(voice="nova", **wrong)
    assert voice.options.spoken == {"speed": 1.5}


async def test_the_environment_names_server_and_key(
    start_server: StartServer, make_voice: MakeVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LiveKit's other plugins have it; a wrong key is an error that says where it comes from."""
    server = await start_server(api_keys=("right",))
    monkeypatch.setenv("VOICEAGENT_TTS_URL", server.websocket_url)
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "right")
    assert await make_voice(None).list_voices()
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "wrong")
    with pytest.raises(APIError, match="HTTP 401: .* set VOICEAGENT_TTS_API_KEY"):
        await make_voice(None).list_voices()
    with pytest.raises(APIStatusError) as raised:
        await make_voice(None).synthesize("Yes.").collect()
    assert raised.value.status_code == 401 and not raised.value.retryable


async def test_tls_to_a_server_without_it_is_told_once(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """No attempt after the first one can mend an address with `wss://`."""
    voice = make_voice(server.websocket_url.replace("ws:", "wss:"))
    with pytest.raises(APIConnectionError, match="begins with ws://") as raised:
        await voice.synthesize("Yes.").collect()
    assert not raised.value.retryable


async def test_an_address_of_another_program_is_told(make_voice: MakeVoice) -> None:
    """Where the address has no path, there is none to leave out."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        voice = make_voice(f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        with pytest.raises(APIError, match="is another program, or a proxy"):
            await voice.synthesize("Yes.").collect()
        with pytest.raises(APIError, match="is another program, or a proxy"):
            await voice.list_voices()


async def test_a_proxy_gets_its_headers(make_voice: MakeVoice) -> None:
    """Headers that are given go with every request, beside the key."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        voice = make_voice(url, api_key="key", extra_headers={"X-Proxy-Key": "door"})
        for request in (voice.list_voices(), voice.acquire(5.0)):
            with pytest.raises(APIError):
                await request
    for head in heads:
        assert b"X-Proxy-Key: door" in head and b"Authorization: Bearer key" in head
    asked = {head.split()[1] for head in heads}
    assert asked == {b"/v1/audio/voices", b"/v1/tts/ws"}


# The package.


def test_the_conventional_import_is_this_plugin() -> None:
    """`from livekit.plugins import voiceagent` has the public names and one registration."""
    from livekit.agents import Plugin

    from livekit.plugins import voiceagent

    assert voiceagent.TTS is TTS
    registered = [p for p in Plugin.registered_plugins if p.package == "livekit.plugins.voiceagent"]
    (plugin,) = registered
    assert plugin.version == voiceagent.__version__
    assert plugin.logger is not None and plugin.logger.name == "livekit.plugins.voiceagent"
    assert set(voiceagent.__all__) <= set(dir(voiceagent))


def test_the_namespace_stays_livekits() -> None:
    """A file of this project in `livekit/` or `livekit/plugins/` would hide LiveKit itself."""
    files = {path.relative_to(ROOT) for path in (ROOT / "livekit").rglob("*.py")}
    assert files and all(path.parts[:3] == ("livekit", "plugins", "voiceagent") for path in files)
    assert (ROOT / "livekit/plugins/voiceagent/py.typed").exists()


async def test_no_secret_of_the_address_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Neither logs nor errors have the user and the password that a proxy asks for."""
    async with aiohttp.ClientSession() as session:
        voice = TTS(url="ws://user:secret@127.0.0.1:1", http_session=session)
        voice.prewarm()
        await until(lambda: "not connected to" in caplog.text, "the first attempt has failed")
        with pytest.raises(APIError) as raised:
            await voice.list_voices()
        await voice.aclose()
    assert "not connected to 127.0.0.1:1:" in caplog.text
    assert "secret" not in caplog.text + str(raised.value)


async def test_a_voice_outside_of_a_job_says_what_to_do() -> None:
    """LiveKit's own text names the remedy."""
    voice = TTS(url="ws://127.0.0.1:1")
    with pytest.raises(APIError, match="create your own aiohttp.ClientSession"):
        await voice.list_voices()
    await voice.aclose()
