"""The plugin's own behaviour: its socket, its voices, its name and its tasks."""

import asyncio
import gc
import math
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from livekit.agents import (
    NOT_GIVEN,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
)
from livekit.agents.tokenize import _basic_hyphenator
from livekit.agents.tts import FallbackAdapter, SynthesizeStream
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.voice.agent_session import SessionConnectOptions
from websockets.asyncio.server import ServerConnection as WebSocket
from websockets.asyncio.server import serve
from websockets.typing import Subprotocol

from testbed import user_sounds
from testbed.listening import words_of
from testbed.livekit_audio import MakeVoice
from testbed.livekit_conversation import DeafSTT, committed, count, ended, heard, real_vad, talking
from testbed.proxy import Router
from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.adapters.livekit.playout import Playout
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import WordTimestamp, samples_to_ms
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.bench.livekit_devices import MICROPHONE_RATE_HZ
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import SUBPROTOCOL, AudioFormat, ReadyMessage, SessionLimits
from voiceagent_tts.server.serve import RunningServer

ROOT = Path(__file__).parents[3]
COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."


# Real voice activity detection.


async def user_says(server: ServerProcess, text: str) -> bytes:
    """A user's speech, as a microphone records it."""
    audio = AudioFormat(sample_rate=MICROPHONE_RATE_HZ)
    async with TTSClient(server.websocket_url) as client:
        events = client.say(text, voice="en-gb+f3", language="en", audio=audio, max_lead_s=0.0)
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])


async def test_a_user_who_barges_in_is_heard(served: ServerProcess, make_voice: MakeVoice) -> None:
    """With real voice activity detection, the history has the words heard before the barge-in."""
    words = await words_of(served.websocket_url, COUNTING, voice="default", language="en")
    voice_of_user = await user_says(served, "Excuse me, could you wait a moment please?")
    turns = {"turn_detection": None, "interruption": {"resume_false_interruption": False}}
    async with talking(make_voice(served), vad=real_vad(), turn_handling=turns) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(1.0)
        conversation.microphone.say(voice_of_user)
        await ended(handle)
        assert handle.interrupted
        spoken = committed(handle)
        played = heard(words, conversation.loudspeaker.played_s)
        assert abs(count(words, spoken) - played) <= 1
        assert 2 <= played < len(words)


async def test_a_cough_pauses_the_reply_and_loses_nothing(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """After a false interruption of more than three seconds, the reply resumes and is complete."""
    cough = await user_says(served, "Hm, hm, hm.")
    options = {
        "vad": real_vad(),
        "stt": DeafSTT(),
        "turn_handling": {
            "turn_detection": "stt",
            "interruption": {"false_interruption_timeout": 2.5},
        },
    }
    async with talking(make_voice(served), **options) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(1.0)
        conversation.microphone.say(cough)
        await conversation.loudspeaker.until(lambda: conversation.loudspeaker.is_paused)
        paused_at = asyncio.get_running_loop().time()
        await conversation.loudspeaker.until(lambda: not conversation.loudspeaker.is_paused)
        assert asyncio.get_running_loop().time() - paused_at >= 3.0
        await ended(handle)
        assert not handle.interrupted
        assert committed(handle) == COUNTING
        assert not conversation.errors


@pytest.mark.parametrize("kind", ["mhm", "cough", "door"])
async def test_a_short_sound_does_not_disturb_a_reply(
    served: ServerProcess, make_voice: MakeVoice, kind: str
) -> None:
    """LiveKit's default settings ignore it; the history has the whole reply."""
    sounds = {"cough": user_sounds.cough(), "door": user_sounds.door()}
    sound = sounds[kind] if kind in sounds else await user_sounds.hum(served.websocket_url)
    turns = {"turn_detection": "stt"}
    options = {"vad": real_vad(), "stt": DeafSTT(), "turn_handling": turns}
    async with talking(make_voice(served), **options) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(1.0)
        conversation.microphone.say(sound)
        await ended(handle)
        assert not handle.interrupted
        assert committed(handle) == COUNTING


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


# The socket.


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


async def test_a_refused_voice_is_logged_with_the_cure(
    served: ServerProcess, make_voice: MakeVoice, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's message says which voices there are."""
    make_voice(served, voice="nosuch").prewarm()
    refused = "the server refused a message: invalid_voice: expected "
    await until(lambda: any(text.startswith(refused) for text in caplog.messages), "the log")


async def test_prewarm_connects_and_prepares(server: RunningServer, make_voice: MakeVoice) -> None:
    """`prewarm` opens the socket before the first reply, and a second call opens no other."""
    voice = make_voice(server)
    assert voice.model == "unknown"
    voice.prewarm()
    await until(lambda: voice.is_connected, "the socket is open")
    voice.prewarm()
    await voice.synthesize("Yes.").collect()
    assert len(server.state.sessions) == 1
    assert voice.model.startswith("espeak")


async def test_a_voice_that_nobody_holds_leaves_its_server(server: RunningServer) -> None:
    """LiveKit closes no TTS that an agent drops, such as one of a handoff."""
    async with aiohttp.ClientSession() as session:
        voice = TTS(url=server.websocket_url, http_session=session)
        await voice.synthesize("Yes.").collect()
        del voice

        def is_left() -> bool:
            gc.collect()
            return not server.state.sessions

        await until(is_left, "the socket is closed")


async def test_prewarm_loads_livekits_hyphenator(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """LiveKit loads it with the first word of a process, which would stop that reply."""
    _basic_hyphenator._get_hyphenator.cache_clear()
    make_voice(served).prewarm()
    loaded = _basic_hyphenator._get_hyphenator.cache_info
    await until(lambda: loaded().currsize == 1, "the hyphenator is loaded")


@pytest.mark.parametrize(
    ("options", "is_aligned"),
    [
        ({}, True),
        ({"aligner": "off"}, False),
        ({"aligner": "native"}, True),
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
    assert voice.capabilities.aligned_transcript
    await voice.acquire(5.0)
    assert voice.capabilities.aligned_transcript == is_aligned


async def test_a_fallback_that_is_made_before_the_first_connection_expects_word_times(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """LiveKit's adapter asks once, when it is made: as the page says, connect before."""
    voice = make_voice(await start_server(aligner="off"))
    early = FallbackAdapter([voice])
    await voice.acquire(5.0)
    late = FallbackAdapter([voice])
    assert early.capabilities.aligned_transcript and not late.capabilities.aligned_transcript


async def test_a_wrong_key_is_reported_and_not_retried(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The error has the status of the handshake, HTTP 401."""
    server = await start_server(api_keys=("right",))
    with pytest.raises(APIStatusError) as raised:
        await make_voice(server, api_key="wrong").synthesize("Yes.").collect()
    assert raised.value.status_code == 401 and not raised.value.retryable
    assert (await make_voice(server, api_key="right").synthesize("Yes.").collect()).duration > 0


async def test_close_ends_streams_and_is_final(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`aclose` ends a reply in progress; later calls fail because the plugin is closed."""
    voice = make_voice(served)
    stream = voice.stream()
    stream.push_text(COUNTING)
    await anext(stream)
    await voice.aclose()
    await voice.aclose()
    assert not voice.is_connected
    with pytest.raises(APIConnectionError):
        await voice.synthesize("Yes.").collect()


# Timeouts.


@pytest.mark.parametrize("begun", ["One, two, three. Four fi", "See **"])
async def test_a_language_model_may_think_in_mid_word(
    served: ServerProcess, make_voice: MakeVoice, begun: str
) -> None:
    """A server that waits for the rest of a word does not count as silent."""
    short = SessionConnectOptions(tts_conn_options=APIConnectOptions(max_retry=0, timeout=1.0))
    voice, go_on = make_voice(served), asyncio.Event()
    async with talking(voice, conn_options=short, tts_text_transforms=None) as conversation:
        handle = conversation.reply(begun, go_on, "ve, six.")
        await asyncio.sleep(2.5)  # the pause of the model
        go_on.set()
        assert await ended(handle) == begun + "ve, six."
        assert not conversation.errors


@pytest.mark.parametrize("opens", [False, True], ids=["dead", "silent"])
async def test_a_silent_server_is_noticed_while_the_model_writes(
    make_voice: MakeVoice, *, opens: bool
) -> None:
    """Text that goes out is no answer: not of a socket that is dead, nor of one that speaks not."""

    async def dead(websocket: WebSocket) -> None:
        limits = SessionLimits(
            max_text_chars=1_000, context_idle_s=120, max_audio_s=600, max_lead_s=8
        )
        await websocket.send(ReadyMessage(session_id="s", model="m", limits=limits).encode())
        async for _ in websocket:
            pass

    async def write(stream: SynthesizeStream) -> None:
        while True:
            stream.push_text("word ")
            await asyncio.sleep(0.02)

    once = APIConnectOptions(max_retry=0, timeout=0.3)
    silent, protocols = ScriptedServer(Script((), end_s=PATIENCE_S)), [Subprotocol(SUBPROTOCOL)]
    async with silent.running(), serve(dead, "127.0.0.1", 0, subprotocols=protocols) as server:
        address = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        voice = make_voice(silent.addresses["ws"] if opens else address)
        async with voice.stream(conn_options=once) as stream:
            writing = asyncio.create_task(write(stream))
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(APITimeoutError, match="the server is silent"):
                    await anext(stream)
            assert voice.is_connected == opens
            writing.cancel()
        await voice.aclose()


async def test_a_busy_agent_does_not_time_out(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Answers that arrive while the agent's code blocks the loop are read before a timeout."""
    voice = make_voice(served)
    await voice.synthesize("Yes.").collect()
    one_attempt = APIConnectOptions(max_retry=0, timeout=2.0)
    async with voice.stream(conn_options=one_attempt) as stream:
        stream.push_text(COUNTING)
        stream.end_input()
        for _ in range(20):
            await asyncio.sleep(0)  # lets the text be sent
        time.sleep(2.5)
        assert sum([event.frame.duration async for event in stream]) > 4


async def test_each_reply_waits_for_its_own_timeout(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Waiting replies share one connection attempt, and each one keeps its own timeout."""
    router = Router("127.0.0.1", int(served.url.rpartition(":")[2]))
    silent: list[asyncio.StreamReader] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if silent:
            await router.serve(reader, writer)
        else:
            silent.append(reader)
            await reader.read(-1)
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        voice = make_voice(f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        options = [APIConnectOptions(max_retry=0, timeout=seconds) for seconds in (0.3, 10.0)]
        replies = [voice.synthesize("Yes.", conn_options=each).collect() for each in options]
        hasty, patient = await asyncio.gather(*replies, return_exceptions=True)
        assert isinstance(hasty, APITimeoutError)
        assert not isinstance(patient, BaseException) and patient.duration > 0.2
        assert router.accepted == 1
        await voice.aclose()
        await router.aclose()


# Voices.


async def test_voices_are_listed(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Each voice has an id and the languages that it speaks."""
    voices = await make_voice(served).list_voices()
    assert "default" in [voice.id for voice in voices]
    assert all("en" in voice.languages for voice in voices if voice.id == "default")
    with pytest.raises(APIError):
        await make_voice("ws://127.0.0.1:9").list_voices()


@pytest.mark.parametrize(
    "body", ['{"data": []}', "[]", "no JSON", '{"voices": [{"id": "nova"}]}', '{"voices": 5}']
)
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
    ("options", "sentence"),
    [
        ({"sample_rate": 12345}, "sample_rate: .*, got 12345"),
        ({"url": 5}, "url: expected a string, got int"),
        ({"url": "ftp://127.0.0.1:8765"}, "url: expected ws://host"),
        ({"api_key": "secret\n"}, "api_key: expected printable ASCII"),
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
    with pytest.raises(InvalidRequestError, match=sentence):
        TTS(**options)


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
    with pytest.raises(APIError, match="HTTP 401: expected a valid key; pass `api_key`"):
        await make_voice(None).list_voices()
    assert TTS().label == "livekit.plugins.voiceagent.TTS"


async def test_a_proxy_gets_its_headers(make_voice: MakeVoice) -> None:
    """Headers that are given go with every request, beside the key."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        voice = make_voice(url, api_key="key", extra_headers={"X-Proxy-Key": "door"})
        with pytest.raises(APIError):
            await voice.list_voices()
        with pytest.raises(APIError):
            await voice.acquire(5.0)
    for head in heads:
        assert b"X-Proxy-Key: door" in head and b"Authorization: Bearer key" in head
    asked = {head.split()[1] for head in heads}
    assert asked == {b"/v1/audio/voices", b"/v1/tts/ws"}


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("ws://127.0.0.1:{}/voice/v1/tts/ws", b"GET /voice/v1/audio/voices HTTP/1.1\r\n"),
        ("http://127.0.0.1:{}", b"GET /v1/audio/voices HTTP/1.1\r\n"),
        ("wss://127.0.0.1:{}/v1/tts/ws", b"\x16\x03\x01"),
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


async def test_a_whole_text_comes_faster_than_it_plays(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`synthesize` is not paced, because its audio is recorded rather than played."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    audio = await make_voice(served).synthesize(COUNTING * 4).collect()
    assert audio.duration > 16
    assert loop.time() - started < audio.duration / 2


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
    first = Script((Step(0.0, samples=9_600, words_ms=(0, 200)),), end_s=0.1, failure=lost)
    rest = Script((Step(0.0, samples=9_600, words_ms=(0, 200)),), end_s=0.0)
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


@pytest.mark.parametrize("end", ["", " \ud83d"])
async def test_an_emoji_of_two_tokens_is_whole(
    served: ServerProcess, make_voice: MakeVoice, end: str
) -> None:
    """As a server of an LLM streams it that counts in UTF-16; half of one alone mutes no reply."""
    async with make_voice(served).stream() as stream:
        for token in ("Hi \ud83d", "\ude00 there.", end):
            stream.push_text(token)
        stream.end_input()
        frames = [event.frame async for event in stream]
    said = [each for frame in frames for each in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]
    assert "".join(said) == "Hi 😀 there." + end.replace("\ud83d", "\ufffd")


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


async def test_an_unexpected_error_ends_a_reply_and_no_more(
    served: ServerProcess, make_voice: MakeVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error of LiveKit, which commits what was heard; it does not quote what is spoken."""
    voice = make_voice(served)

    def play(*_: object) -> None:
        raise ValueError(COUNTING)

    with monkeypatch.context() as broken:
        broken.setattr(Playout, "play", play)
        with pytest.raises(APIError, match="^unexpected ValueError") as caught:
            await voice.synthesize(COUNTING).collect()
        assert not caught.value.retryable
    assert (await voice.synthesize(COUNTING).collect()).duration > 4


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
