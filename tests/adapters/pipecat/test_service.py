"""The Pipecat service on real pipelines: the history has the words that were heard."""

import asyncio
import socket
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest
from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFAMetricsData, TTFBMetricsData
from pipecat.services.tts_service import TextAggregationMode, TTSService, WebsocketTTSService
from pipecat.services.websocket_service import WebsocketService
from pipecat.utils.context.word_timestamp_tracker import WordTimestampTracker
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from testbed.pipecat_conversation import ENGLISH, Conversation, close_sockets, talking
from testbed.servers import StartServer
from testbed.waiting import undisturbed, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer, running

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
SIXTEEN = "Eight nine five seventy zero seventy. Nineteen thirteen four seventeen sixty eighty."
CUT_POINTS_S = [0.4 + 0.31 * k for k in range(8)]


def service(server: RunningServer, **options: Any) -> VoiceAgentTTSService:
    """A service for `server`, in English by default."""
    return VoiceAgentTTSService(
        url=server.websocket_url, **{"settings": ENGLISH, "response_timeout_s": 5.0} | options
    )


# Committed words are the words heard.


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Dr. Smith's bill is $42.50 today.\n\nOne - two  three! 😊 And (four)?"),
        ("en", "**Bold** words, `code` and\n- a list\n- of items."),
        ("de", "Guten Tag! Das kostet 3,50 Euro, d. h. nicht viel."),
        ("fr", "Bonjour ! Comment ça va ?"),
        ("es", "¿Qué tal? ¡Muy bien!"),
        ("zh", "你好。今天是Monday,我们去公园。"),
        ("ja", "キャベツは100円です。ラーメンも。"),
        ("ko", "안녕하세요. 오늘은 좋은 날입니다."),
    ],
)
async def test_a_whole_turn_is_committed_verbatim(
    server: RunningServer, language: str, text: str
) -> None:
    """The history has the LLM's own text, including white space, in every script."""
    settings = VoiceAgentTTSService.Settings(language=language, speed=2.0)
    async with talking(service(server, settings=settings)) as conversation:
        await conversation.reply(*text)
        assert await conversation.spoken() == text
        assert conversation.committed == [text]
        assert not conversation.errors


async def test_lexicon_and_markup_leave_the_history_verbatim(server: RunningServer) -> None:
    """The history has what the LLM wrote, tags included."""
    text = 'Use nginx in New York. <break time="200ms"/> The code is <spell>A7-42X</spell>, go.'
    lexicon = {"nginx": "engine x", "New York": {"say": "Noo Yawk"}}
    tts = service(server, language="en", lexicon=lexicon, markup=True)
    async with talking(tts) as conversation:
        context_id = await conversation.reply(*text.partition("New"))
        assert await conversation.spoken() == text
        assert conversation.committed == [text]
        words = [each.word.text for each in conversation.words[context_id]]
        assert "New York." in words
        assert not conversation.errors


@pytest.mark.parametrize("rtf", [pytest.param(1 / 5, marks=pytest.mark.thorough), 1 / 1.2])
async def test_sixteen_cut_points_are_exact(start_server: StartServer, rtf: float) -> None:
    """Wherever the user interrupts, the history has exactly the words whose audio had started."""
    server = await start_server(throttle={"rtf": rtf})
    settings = VoiceAgentTTSService.Settings(language="en", speed=0.9)
    async with talking(service(server, settings=settings)) as conversation:

        async def cut(at_s: float) -> tuple[str, str]:
            context_id = await conversation.reply(SIXTEEN)
            await conversation.play(context_id, at_s)
            words = conversation.words[context_id]
            assert min(abs(word.start_sample / SAMPLE_RATE_HZ - at_s) for word in words) > 0.08
            return await conversation.interrupt(), conversation.heard(context_id, SIXTEEN)

        for at_s in CUT_POINTS_S:
            committed, heard = await undisturbed(partial(cut, at_s))
            assert committed == heard


async def test_words_wait_for_sound_that_stalls(server: RunningServer) -> None:
    """If the LLM stalls in mid-turn, the words after the gap are committed with their audio."""

    async def cut() -> tuple[str, str]:
        async with talking(service(server)) as conversation:
            first, second = "One, two. ", "Four, five, six, seven, eight."
            context_id = await conversation.begin(first)
            await conversation.until(TTSAudioRawFrame)
            await asyncio.sleep(2.0)  # the stall: longer than the first sentence
            played = conversation.transport.utterances[0].played_samples / SAMPLE_RATE_HZ
            await conversation.append(second)
            await conversation.end()
            await conversation.play(context_id, played + 0.8)
            committed = await conversation.interrupt()
            return committed, conversation.heard(context_id, first + second)

    committed, heard = await undisturbed(cut)
    assert committed == heard
    assert committed.startswith("One, two. Four,")
    assert "seven" not in committed


async def test_a_program_that_was_late_is_cut_exactly(server: RunningServer) -> None:
    """A delay of the agent's loop delays words and audio alike, so the cut stays exact."""

    async def cut() -> tuple[str, str]:
        async with talking(service(server)) as conversation:
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 0.9)
            time.sleep(0.8)  # another program has the CPU
            await conversation.play(context_id, 1.0)
            return await conversation.interrupt(), conversation.heard(context_id, COUNTING)

    committed, heard = await undisturbed(cut, own_standstills=1)
    assert committed == heard


async def test_words_of_a_second_utterance_wait_for_the_first(server: RunningServer) -> None:
    """A context that plays after another is timed from the start of its own audio."""

    async def cut() -> tuple[str, str]:
        async with talking(service(server)) as conversation:
            first, second = "One, two, three, four.", "Five, six, seven, eight."
            await conversation.push(TTSSpeakFrame(first), TTSSpeakFrame(second))
            await conversation.begun()
            context_id = await conversation.begun()
            assert await conversation.spoken() == first
            await conversation.play(context_id, 0.9)
            return await conversation.interrupt(), conversation.heard(context_id, second)

    committed, heard = await undisturbed(cut)
    assert committed == heard


async def test_words_wait_for_speech_that_cannot_be_interrupted(server: RunningServer) -> None:
    """Audio that survives an interruption is heard before the next reply."""

    async def cut() -> tuple[str, str]:
        async with talking(service(server)) as conversation:
            speech, reply = TTSSpeakFrame(COUNTING), "Eleven, twelve, thirteen, fourteen."
            speech.interruptible = False
            await conversation.push(speech)
            first = await conversation.begun()
            await conversation.until(TTSStoppedFrame)
            await conversation.play(first, 0.3)
            await conversation.interrupt()
            second = await conversation.reply(reply)
            await conversation.play(second, 0.5)
            return await conversation.interrupt(), conversation.heard(second, reply)

    committed, heard = await undisturbed(cut)
    assert heard and committed.endswith(heard)
    assert committed.removesuffix(heard).rstrip().endswith("nine, ten.")


async def test_without_word_times_a_whole_turn_is_committed(start_server: StartServer) -> None:
    """Without word times and without an interruption, no text is lost (row D2)."""
    server = await start_server(throttle={"without_words": True})
    async with talking(service(server)) as conversation:
        await speaks(conversation)


async def test_a_late_first_audio_changes_nothing(start_server: StartServer) -> None:
    """Audio that starts after four seconds is played and committed (row K)."""
    server = await start_server(throttle={"first_audio_s": 3.6})

    async def cut() -> tuple[str, str]:
        async with talking(service(server)) as conversation:
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 1.2)
            return await conversation.interrupt(), conversation.heard(context_id, COUNTING)

    committed, heard = await undisturbed(cut)
    assert committed == heard != ""


async def test_the_samples_are_the_servers(start_server: StartServer) -> None:
    """No sample is lost, doubled or changed between the server and the transport."""
    server, twin = (
        await start_server(),
        await start_server(),
    )  # espeak's noise depends on its earlier texts
    async with TTSClient(twin.websocket_url) as client:
        events = client.say(COUNTING, language="en", voice="default")
        expected = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    async with talking(service(server)) as conversation:
        await conversation.reply(COUNTING)
        await conversation.until(TTSStoppedFrame)
        frames = [frame for frame in conversation.frames if isinstance(frame, TTSAudioRawFrame)]
        assert b"".join(frame.audio for frame in frames) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"text_aggregator": SimpleTextAggregator()},
        {"text_aggregation_mode": TextAggregationMode.TOKEN},
        {"sample_rate": 16_000},
        {"sample_rate": 44_100},
        {"sample_rate": 32_000},
    ],
)
async def test_other_ways_of_pipecat_work(server: RunningServer, options: dict[str, Any]) -> None:
    """Pipecat's own aggregator, its token mode, and other sample rates commit the same text."""
    async with talking(service(server, **options)) as conversation:
        await conversation.reply("One, ", "two. ", "Three, four.")
        assert await conversation.spoken() == "One, two. Three, four."
        assert not conversation.errors


# Failures are not committed, and the next turn works.


async def test_a_turn_without_sound_commits_nothing(server: RunningServer) -> None:
    """Text without audio does not count as spoken (row G)."""
    async with talking(service(server)) as conversation:
        await conversation.reply("...")
        assert await conversation.spoken() == ""
        await speaks(conversation)


async def test_a_silent_server_fails_the_turn(start_server: StartServer) -> None:
    """A server that accepts text and sends nothing causes an error, and nothing is committed."""
    server = await start_server(throttle={"is_silent": True})
    async with talking(service(server, response_timeout_s=1.0)) as conversation:
        await conversation.reply(COUNTING)
        assert await conversation.spoken() == ""
        assert conversation.errors[0].category is ErrorCategory.SERVER
        assert conversation.tts.is_usable


async def test_a_bad_request_does_not_mute_the_bot(server: RunningServer) -> None:
    """An unknown voice fails its turn; with a known voice, the next turn speaks."""
    settings = VoiceAgentTTSService.Settings(voice="nobody", language="en")
    async with talking(service(server, settings=settings)) as conversation:
        await conversation.reply(COUNTING)
        assert await conversation.spoken() == ""
        error = conversation.errors[0]
        assert "invalid_voice" in error.error
        assert error.category is ErrorCategory.UNKNOWN
        assert conversation.tts.is_usable
        delta = VoiceAgentTTSService.Settings(voice="default")
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await speaks(conversation)


async def test_a_wrong_key_is_permanent(start_server: StartServer) -> None:
    """A wrong key makes the service unusable at once, because no retry would help."""
    server = await start_server(api_keys=("right",))
    tts = service(server, api_key="wrong")
    refused = asyncio.Event()

    @tts.event_handler("on_connection_error")
    async def on_connection_error(_: object, error: str) -> None:
        refused.set()

    async with talking(tts):
        await refused.wait()
        assert not tts.is_usable
    async with talking(service(server, api_key="right")) as conversation:
        await speaks(conversation)


async def test_a_server_that_comes_later_is_found() -> None:
    """The pipeline may start before the server; the service connects when the server runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    tts = VoiceAgentTTSService(url=f"ws://127.0.0.1:{port}/v1/tts/ws", settings=ENGLISH)
    failed, connected = asyncio.Event(), asyncio.Event()

    @tts.event_handler("on_connection_error")
    async def on_connection_error(_: object, error: str) -> None:
        failed.set()

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        connected.set()

    async with talking(tts) as conversation:
        await failed.wait()
        async with running(Settings(port=port)):
            await connected.wait()
            await speaks(conversation)


async def test_a_draining_server_is_left(server: RunningServer) -> None:
    """Between turns, the service reconnects to the server that now has the address."""
    tts = service(server)
    connected: asyncio.Queue[None] = asyncio.Queue()

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        connected.put_nowait(None)

    async with talking(tts) as conversation:
        await connected.get()
        await speaks(conversation)
        for session in list(server.state.sessions):
            session.drain(1000)
        await connected.get()
        await speaks(conversation)
        assert not conversation.errors


async def test_a_reply_behind_a_draining_servers_last_is_spoken(server: RunningServer) -> None:
    """The reply waits until the draining server has finished, and the next server speaks it."""
    async with talking(service(server, max_lead_s=0.5)) as conversation:
        first = f"{COUNTING} {COUNTING}"
        await conversation.push(TTSSpeakFrame(first))
        await conversation.play(await conversation.begun(), 0.3)
        for session in list(server.state.sessions):
            session.drain(30_000)
        await conversation.push(TTSSpeakFrame("Yes, I can."))
        assert await conversation.spoken() == first
        assert await conversation.spoken() == "Yes, I can."
        assert not conversation.errors


# Turns and the server's contexts.


async def test_an_interruption_stops_the_server(start_server: StartServer) -> None:
    """After an interruption, no audio of the turn leaves, and its row is free."""
    server = await start_server(throttle={"rtf": 0.8})
    async with talking(service(server)) as conversation:
        context_id = await conversation.reply(COUNTING)
        await conversation.play(context_id, 0.5)
        assert server.state.synthesizer.contexts_active == 1
        await conversation.interrupt()
        sent = conversation.count(TTSAudioRawFrame)
        await speaks(conversation, "Yes.")
        later = [frame for frame in conversation.frames if isinstance(frame, TTSAudioRawFrame)]
        assert all(frame.context_id != context_id for frame in later[sent:])
        assert server.state.synthesizer.contexts_active == 0


async def test_a_turn_without_text_leaves_nothing_open(server: RunningServer) -> None:
    """A reply without text, or interrupted before its first word, frees its context."""
    async with talking(service(server)) as conversation:
        await conversation.push(LLMFullResponseStartFrame(), LLMFullResponseEndFrame())
        assert await conversation.spoken() == ""
        await conversation.push(LLMFullResponseStartFrame())
        while server.state.synthesizer.contexts_active == 0:
            await asyncio.sleep(0.01)
        assert await conversation.interrupt() == ""
        await speaks(conversation)
        assert server.state.synthesizer.contexts_active == 0
        assert not conversation.errors


async def test_fifty_interruptions_on_one_socket(server: RunningServer) -> None:
    """Barge-ins in quick succession leave no contexts and no sockets open."""
    tts = service(server)
    connections = 0

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        nonlocal connections
        connections += 1

    async with talking(tts) as conversation:
        for _ in range(50):
            await conversation.reply(COUNTING)
            await conversation.interrupt()
        await speaks(conversation)
        assert connections == 1
        assert server.state.synthesizer.contexts_active == 0


@pytest.mark.parametrize("mode", list(TextAggregationMode))
async def test_a_new_voice_in_mid_turn_loses_no_word(
    server: RunningServer, mode: TextAggregationMode
) -> None:
    """The next clause has the new voice, without a reconnect and without a lost word."""
    tts = service(server, text_aggregation_mode=mode)
    async with talking(tts) as conversation:
        first = await conversation.begin("One, two. ")
        delta = VoiceAgentTTSService.Settings(voice="en-gb+f3")
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await conversation.append("Three, four.")
        await conversation.end()
        assert await conversation.spoken() == "One, two. Three, four."
        played = conversation.transport.utterances  # after a standstill, later than the words
        await until(lambda: len({each.context_id for each in played}) == 2, "both voices")
        assert played[0].context_id == first
        assert tts.settings.voice == "en-gb+f3"


async def test_each_turn_is_measured_once(server: RunningServer) -> None:
    """A turn has one time to first byte and one to first audio."""
    async with talking(service(server)) as conversation:
        for _ in range(2):
            await speaks(conversation)
        data = [d for f in conversation.frames if isinstance(f, MetricsFrame) for d in f.data]
        first_bytes = [d for d in data if isinstance(d, TTFBMetricsData) and d.value > 0]
        first_audios = [d for d in data if isinstance(d, TTFAMetricsData) and d.ttfa > 0]
        assert (len(first_bytes), len(first_audios)) == (2, 2)


async def test_connection_events_are_raised_once(server: RunningServer) -> None:
    """`on_connected` and `on_disconnected` are called once in the life of a pipeline."""
    tts = service(server)
    events: list[str] = []

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        events.append("connected")

    @tts.event_handler("on_disconnected")
    async def on_disconnected(_: object) -> None:
        events.append("disconnected")

    async with talking(tts) as conversation:
        await speaks(conversation)
    assert events == ["connected", "disconnected"]


async def test_connections_that_break_soon_do_not_mute_the_bot(server: RunningServer) -> None:
    """Pipecat gives up after three short connections, unless the server was ready on them."""
    accepted = server.state.metrics.registry.get_sample_value
    async with talking(service(server)) as conversation:
        for count in range(1, 6):
            await until(lambda n=count: accepted("tts_ws_accepted_total") == n, f"socket {count}")
            if count < 5:
                close_sockets(server)
        await speaks(conversation)
        assert conversation.tts.is_usable


async def test_a_service_that_has_given_up_commits_nothing(start_server: StartServer) -> None:
    """Text of a turn that is not sent to an unusable service is not committed."""
    server = await start_server()
    async with talking(
        service(server, reconnect_attempts=1, response_timeout_s=1.0)
    ) as conversation:
        await speaks(conversation)
        server.uvicorn_server.should_exit = True
        await server.serving
        await until(lambda: not conversation.tts.is_usable, "the service gives up")
        await conversation.push(
            LLMFullResponseStartFrame(), LLMTextFrame(COUNTING), LLMFullResponseEndFrame()
        )
        assert await conversation.spoken() == ""


async def speaks(conversation: Conversation, text: str = "Yes, I can.") -> None:
    """Check that a turn is spoken and committed whole."""
    await conversation.reply(text)
    assert await conversation.spoken() == text


async def test_a_warning_of_the_server_is_logged_once(server: RunningServer) -> None:
    """It says which option has no effect; it does not come again with the next turn."""
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING", format="{message}")
    settings = VoiceAgentTTSService.Settings(language="en", instruct="whisper")
    try:
        async with talking(service(server, settings=settings)) as conversation:
            await speaks(conversation)
            await speaks(conversation, "And so on.")
            assert not conversation.errors
    finally:
        logger.remove(sink)
    (warning,) = [line for line in lines if "instruct_ignored" in line]
    assert "`instruct` has no effect" in warning


# Construction.


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_a_host_alone_is_a_server(server: RunningServer, scheme: str) -> None:
    """The address may lack the path, and may be that of the server's HTTP routes."""
    url = server.url.replace("http", scheme, 1)
    async with talking(VoiceAgentTTSService(url=url, settings=ENGLISH)) as conversation:
        await speaks(conversation)
        assert not conversation.errors


def test_an_address_of_no_server_is_refused() -> None:
    """A wrong address is an error at construction, not a mute bot."""
    with pytest.raises(InvalidRequestError, match="url: expected ws://host"):
        VoiceAgentTTSService(url="ftp://127.0.0.1:8765")


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ({"voice": "nova"}, None, {"voice": "nova"}),
        ({"voice_id": "nova", "speed": 1.2}, None, {"voice": "nova", "speed": 1.2}),
        ({"language": "de", "instruct": "calm", "seed": 7}, None,
         {"language": "de", "instruct": "calm", "seed": 7}),
        ({"lexicon": {"nginx": "engine x"}, "markup": True}, None,
         {"lexicon": {"nginx": "engine x"}, "markup": True}),
        ({"voice": "nova", "speed": 1.2}, {"voice": "en"}, {"voice": "en", "speed": 1.2}),
    ],
)  # fmt: skip
def test_settings_may_be_arguments(
    arguments: dict[str, Any], settings: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    """The constructor accepts voice, speed and so on, as Pipecat's own services do."""
    chosen = None if settings is None else VoiceAgentTTSService.Settings(**settings)
    tts = VoiceAgentTTSService(settings=chosen, **arguments)
    given = {name: value for name, value in vars(tts.settings).items() if value is not None}
    assert {name: given[name] for name in expected} == expected


def test_an_unknown_argument_is_refused() -> None:
    """A misspelt argument, or one of another service, does not vanish."""
    with pytest.raises(TypeError, match=r"VoiceAgentTTSService has no argument `speeed`.*`speed`"):
        VoiceAgentTTSService(speeed=1.2)
    with pytest.raises(ValueError, match="expected `voice` or `voice_id`, got both"):
        VoiceAgentTTSService(voice="en", voice_id="de")
    VoiceAgentTTSService(name="voice", append_trailing_space=True, sample_rate=16_000)


# Edge cases.


async def test_an_option_that_no_context_has_is_refused(server: RunningServer) -> None:
    """An unknown option is a `ValueError` at construction, and an error frame later."""
    settings = VoiceAgentTTSService.Settings(language="en", extra={"pitch": 2})
    with pytest.raises(
        ValueError, match=r"settings\.extra: expected .*leading_silence.*; got pitch"
    ):
        VoiceAgentTTSService(settings=settings)
    settings = VoiceAgentTTSService.Settings(language="en", extra={"leading_silence": True})
    async with talking(service(server, settings=settings)) as conversation:
        delta = VoiceAgentTTSService.Settings(extra={"pitch": 2})
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await conversation.until(ErrorFrame)
        await speaks(conversation)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (TTSService, "_update_settings"),
        (TTSService, "_call_event_handler"),
        (TTSService, "_refresh_audio_context"),
        (TTSService, "_push_sequencer_frames"),
        (TTSService, "_apply_context_interruptible"),
        (TTSService, "_register_event_handler"),
        (TTSService, "_trim_text"),
        (WebsocketTTSService, "_connect"),
        (WebsocketTTSService, "_disconnect"),
        (WebsocketTTSService, "_reconnect_websocket"),
        (WebsocketTTSService, "_report_error"),
        (WebsocketService, "_connect_websocket"),
        (WebsocketService, "_disconnect_websocket"),
        (WebsocketService, "_reconnect_websocket"),
        (WebsocketService, "_receive_messages"),
        (WebsocketService, "_receive_task_handler"),
        (WebsocketService, "_try_reconnect"),
        (WebsocketService, "_websocket_connect"),
        (WordTimestampTracker, "pts"),
    ],
)
def test_private_methods_of_pipecat_exist(owner: type, name: str) -> None:
    """The private methods of Pipecat that the service overrides or calls exist."""
    assert callable(getattr(owner, name))


def test_private_attributes_of_pipecat_exist() -> None:
    """The private attributes of Pipecat that the service reads or sets exist."""
    names = (
        "_turn_context_id", "_text_aggregator", "_word_timestamp_tracker", "_settings",
        "_aggregated_frame_sequencer",
    )  # fmt: skip
    plain = SimpleTextAggregator()
    tts = VoiceAgentTTSService(text_aggregator=plain)
    attributes = vars(tts)
    assert set(names) <= attributes.keys()
    assert attributes["_text_aggregator"] is plain
    assert isinstance(attributes["_word_timestamp_tracker"], WordTimestampTracker)
    assert "_websocket" in attributes
    assert tts._is_streaming_tokens is False


def test_the_import_is_light() -> None:
    """The import loads neither torch nor the server's packages."""
    program = (
        "import sys, voiceagent_tts.adapters.pipecat;"
        "print([name for name in ('torch', 'fastapi', 'zmq') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip().endswith("[]"), result.stderr
