"""The Pipecat service on real pipelines: failures, turns and contexts, and how it is made."""

import asyncio
from typing import Any

import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    ManuallySwitchServiceFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import (
    ProcessingMetricsData,
    TextAggregationMetricsData,
    TTFAMetricsData,
    TTFBMetricsData,
    TTSUsageMetricsData,
)
from pipecat.services.cartesia.tts import CartesiaTTSService, GenerationConfig
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.errors import ErrorCategory

from testbed.pipecat_conversation import ENGLISH, counter_of, service, speaks, talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, close_sockets
from testbed.understudy import switching
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport
from voiceagent_tts.server.serve import RunningServer, running

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
FOREIGN = CartesiaTTSService.Settings(voice="nova", generation_config=GenerationConfig(speed=1.3))
"""Settings of another service, with a field that this one does not have."""


# Failures are not committed, and the next turn works.


async def test_a_bad_request_does_not_mute_the_bot(served: ServerProcess) -> None:
    """An unknown voice fails its turn; with a known voice, the next turn speaks."""
    settings = VoiceAgentTTSService.Settings(voice="nobody", language="en")
    async with talking(service(served, settings=settings)) as conversation:
        await conversation.reply(COUNTING)
        assert await conversation.spoken() == ""
        (error,) = conversation.errors
        assert "invalid_voice" in error.error
        assert error.category is ErrorCategory.UNKNOWN
        assert conversation.tts.is_usable
        delta = VoiceAgentTTSService.Settings(voice="default")
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await speaks(conversation)


async def test_a_server_that_comes_later_is_found(free_port: int) -> None:
    """The pipeline may start before the server; the service connects when the server runs."""
    tts = VoiceAgentTTSService(url=f"ws://127.0.0.1:{free_port}/v1/tts/ws", settings=ENGLISH)
    failed, connected = asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    @tts.event_handler("on_connection_error")
    async def on_connection_error(_: object, error: str) -> None:
        errors.append(error)
        failed.set()

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        connected.set()

    async with talking(tts) as conversation:
        await failed.wait()
        remedy = "start one with `voiceagent-tts serve`"
        assert errors == [f"no server at 127.0.0.1:{free_port}; {remedy}"]
        async with running(Settings(port=free_port)):
            await connected.wait()
            await speaks(conversation)


async def test_a_reply_behind_a_draining_servers_last_is_spoken(server: RunningServer) -> None:
    """The service is on the next server at once, while the draining one ends what it speaks."""
    tts, connected = service(server, max_lead_s=0.5), asyncio.Queue[int]()

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        connected.put_nowait(server.state.synthesizer.contexts_active)

    async with talking(tts) as conversation:
        assert await connected.get() == 0
        first = f"{COUNTING} {COUNTING}"
        await conversation.push(TTSSpeakFrame(first))
        await conversation.play(await conversation.begun(), 0.3)
        for session in list(server.state.sessions):
            session.drain(30_000)
        assert await connected.get() == 1, "it connects while the first reply is being spoken"
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


async def test_twenty_interruptions_on_one_socket(server: RunningServer) -> None:
    """Barge-ins in quick succession leave no contexts and no sockets open."""
    tts = service(server)
    connections = counter_of(tts, "on_connected")
    async with talking(tts) as conversation:
        for _ in range(20):
            await conversation.reply(COUNTING)
            await conversation.interrupt()
        await speaks(conversation)
        assert connections() == 1
        assert server.state.synthesizer.contexts_active == 0


@pytest.mark.parametrize("mode", list(TextAggregationMode))
async def test_a_new_voice_in_mid_turn_loses_no_word(
    served: ServerProcess, mode: TextAggregationMode
) -> None:
    """The next clause has the new voice, without a reconnect and without a lost word."""
    tts = service(served, text_aggregation_mode=mode)
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


async def test_each_turn_is_measured_once(served: ServerProcess) -> None:
    """A turn has one time to first byte and one to first audio."""
    async with talking(service(served)) as conversation:
        for _ in range(2):
            await speaks(conversation)
        data = [d for f in conversation.frames if isinstance(f, MetricsFrame) for d in f.data]
        first_bytes = [d for d in data if isinstance(d, TTFBMetricsData) and d.value > 0]
        first_audios = [d for d in data if isinstance(d, TTFAMetricsData) and d.ttfa > 0]
        assert (len(first_bytes), len(first_audios)) == (2, 2)
        assert not any(d.value for d in data if isinstance(d, ProcessingMetricsData))


async def test_tokens_are_measured_as_one_text(served: ServerProcess) -> None:
    """Their characters are counted once a turn, and nobody collects them."""
    async with talking(service(served, text_aggregation_mode="token")) as conversation:
        await conversation.reply("Yes, ", "I ", "can.")
        await conversation.spoken()
        data = [d for f in conversation.frames if isinstance(f, MetricsFrame) for d in f.data]
        assert [d.value for d in data if isinstance(d, TTSUsageMetricsData)] == [len("Yes, I can.")]
        assert not any(isinstance(d, TextAggregationMetricsData) for d in data)


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


async def test_an_outage_longer_than_all_attempts_mutes_no_later_turn(
    start_server: StartServer, logged: list[str]
) -> None:
    """Each turn during the outage has one error and commits nothing; a later one is spoken."""
    server = await start_server()
    port = int(server.url.rpartition(":")[2])
    options = {"reconnect_attempts": 2, "response_timeout_s": 0.5}
    async with talking(service(server, **options)) as conversation:
        await speaks(conversation)
        server.uvicorn_server.should_exit = True
        await server.serving
        await until(lambda: any("after 2 attempts" in line for line in logged), "it gives up")
        for _ in range(2):
            before = len(conversation.errors)
            await conversation.push(
                LLMFullResponseStartFrame(), LLMTextFrame(COUNTING), LLMFullResponseEndFrame()
            )
            assert await conversation.spoken() == ""
            (error,) = conversation.errors[before:]
            assert error.error.startswith("connection_lost: ")
        async with running(Settings(port=port)):
            await speaks(conversation)


@pytest.mark.parametrize("fault", ["no server", "no voice"])
async def test_another_service_takes_over(served: ServerProcess, fault: str) -> None:
    """Where Pipecat has a substitute, it speaks the turn after the one that failed."""
    url = "ws://127.0.0.1:9" if fault == "no server" else served.websocket_url
    settings = VoiceAgentTTSService.Settings(voice="nobody" if fault == "no voice" else "default")
    async with switching(VoiceAgentTTSService(url=url, settings=settings)) as both:
        await both.worker.queue_frame(TTSSpeakFrame("One."))
        async with asyncio.timeout(PATIENCE_S):
            await both.switched_at_s
        await both.worker.queue_frame(TTSSpeakFrame("Two."))
        await until(lambda: both.second.said == ["Two."], "the substitute speaks")


@pytest.mark.parametrize("fault", ["no voice", "none"])
async def test_a_service_that_is_active_again_begins_a_new_reply(
    served: ServerProcess, fault: str
) -> None:
    """It has not got the end of the reply in which another one took over, by itself or not."""
    settings = VoiceAgentTTSService.Settings(voice="nobody" if fault == "no voice" else "default")
    first, out = service(served, settings=settings), RealtimeFileTransport()
    async with asyncio.timeout(PATIENCE_S), switching(first, out.output()) as both:
        worker, second, asked = both.worker, both.second, both.asked
        begin = [LLMFullResponseStartFrame(), LLMTextFrame("Certainly. One mom")]
        await worker.queue_frames(begin)
        old_id, _ = await asked.get()
        if fault == "none":
            await worker.queue_frame(ManuallySwitchServiceFrame(service=second))
        await both.switched_at_s
        await worker.queue_frames([LLMTextFrame("ent."), LLMFullResponseEndFrame()])
        await until(lambda: bool(second.said), "the substitute speaks")
        delta = VoiceAgentTTSService.Settings(voice="default", seed=1)
        await worker.queue_frame(TTSUpdateSettingsFrame(delta=delta, service=first))
        await until(lambda: first.is_usable, "it has another chance")
        await worker.queue_frame(ManuallySwitchServiceFrame(service=first))
        said = [LLMTextFrame("Sure."), LLMFullResponseEndFrame()]
        await worker.queue_frames([LLMFullResponseStartFrame(), *said])
        context_id, text = await asked.get()
        assert text == "Sure." and context_id != old_id
        await out.wait_until_played(context_id, SAMPLE_RATE_HZ // 5)


async def test_a_warning_of_the_server_is_logged_once(
    served: ServerProcess, logged: list[str]
) -> None:
    """It says which option has no effect; it does not come again with the next turn."""
    settings = VoiceAgentTTSService.Settings(language="en", instruct="whisper")
    async with talking(service(served, settings=settings)) as conversation:
        await speaks(conversation)
        await speaks(conversation, "And so on.")
        assert not conversation.errors
    (warning,) = [line for line in logged if "instruct_ignored" in line]
    assert "`instruct` has no effect" in warning


# Construction.


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ({"voice": "nova"}, None, {"voice": "nova"}),
        ({"model": "qwen3-tts", "voice": "nova"}, None, {"model": "qwen3-tts", "voice": "nova"}),
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


# Edge cases.


def test_settings_of_another_service_are_refused() -> None:
    """Where they have fields that this one does not have; the others mean the same."""
    refusal = r"settings: expected fields of this service \(.*voice\); got generation_config"
    with pytest.raises(ValueError, match=refusal):
        VoiceAgentTTSService(settings=FOREIGN)
    settings = CartesiaTTSService.Settings(voice="nova", language="de")
    tts = VoiceAgentTTSService(settings=settings)
    assert (tts.settings.voice, tts.settings.language) == ("nova", "de")


@pytest.mark.parametrize("name", ["timestamps", "audio", "pitch"])
def test_what_the_service_sets_itself_is_no_option(name: str) -> None:
    """The history needs the words, and the transport its own sample rate."""
    sentence = rf"settings\.extra: expected .*leading_silence.*; got {name}"
    with pytest.raises(ValueError, match=sentence):
        VoiceAgentTTSService(settings=VoiceAgentTTSService.Settings(extra={name: None}))


async def test_a_wrong_change_changes_nothing(served: ServerProcess) -> None:
    """It is an error of its frame, not of all turns that follow."""
    async with talking(service(served)) as conversation:
        for delta, sentence in (
            (VoiceAgentTTSService.Settings(speed=9.0, voice="nobody"), "speed: "),
            (VoiceAgentTTSService.Settings(voice="nobody", extra={"pitch": 2}), "got pitch"),
            (FOREIGN, "got generation_config"),
        ):
            conversation.errors.clear()
            await conversation.push(TTSUpdateSettingsFrame(delta=delta))
            await conversation.until(ErrorFrame)
            assert sentence in conversation.errors[0].error
        await speaks(conversation)
        assert len(conversation.errors) == 1
        assert conversation.tts.settings.voice == "default"


def test_extra_options_are_in_every_context() -> None:
    """Also those that are arguments of the service, which a change of settings may override."""
    settings = VoiceAgentTTSService.Settings(extra={"max_lead_s": 0.5, "cache": False})
    for arguments in ({}, {"max_lead_s": 2.0, "max_buffer_delay_ms": 100}):
        tts = VoiceAgentTTSService(settings=settings, **arguments)
        options = tts._open_options(tts._settings)
        assert (options.get("max_lead_s"), options.get("cache")) == (0.5, False)
        assert options.get("max_buffer_delay_ms") == arguments.get("max_buffer_delay_ms")


async def test_an_extra_option_with_a_field_is_that_field() -> None:
    """A later change of the field counts, and so does one of the option."""
    tts = VoiceAgentTTSService(settings=VoiceAgentTTSService.Settings(extra={"speed": 1.5}))
    assert tts.settings.given_fields()["speed"] == 1.5 and not tts.settings.extra
    for speed, delta in [
        (1.0, VoiceAgentTTSService.Settings(speed=1.0)),
        (1.2, TTSSettings(extra={"speed": 1.2})),
        (1.3, VoiceAgentTTSService.Settings(speed=1.3)),
    ]:
        assert await tts._update_settings(delta)
        assert tts._open_options(tts._settings).get("speed") == speed


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"speed": 9.0}, InvalidRequestError, "speed: .*less than or equal to 4; got 9"),
        ({"seed": "x"}, InvalidRequestError, "seed: .*"),
        ({"response_timeout_s": 0}, InvalidRequestError, "response_timeout_s: .* above 0, got 0"),
        ({"response_timeout_s": True}, InvalidRequestError, "response_timeout_s: .*, got True"),
        ({"max_lead_s": float("nan")}, InvalidRequestError, "max_lead_s: .*; got NaN"),
        ({"max_buffer_delay_ms": True}, InvalidRequestError, "max_buffer_delay_ms: .*; got true"),
        ({"speed": "1.2"}, InvalidRequestError, "speed: .*; got a string"),
        ({"text_aggregation_mode": "tokens"}, ValueError, "'tokens' is not a valid"),
        ({"output_latency_s": float("nan")}, InvalidRequestError, "output_latency_s: .*got nan"),
        ({"extra_headers": {"X": "a\nb"}}, InvalidRequestError, "extra_headers: .* as X, got"),
        ({"api_key": "secret\n"}, InvalidRequestError, "api_key: expected printable ASCII"),
        ({"sample_rate": "24000"}, InvalidRequestError, "sample_rate: .*got '24000'"),
        ({"url": 5}, InvalidRequestError, "url: expected a string, got int"),
        ({"url": "ftp://127.0.0.1:8765"}, InvalidRequestError, "url: expected ws://host"),
        ({"model": 5}, InvalidRequestError, "model: expected a string, got int"),
        ({"language": "klingon"}, InvalidRequestError, "expected a language among .*'klingon'"),
        ({"reconnect_attempts": 2.5}, InvalidRequestError, "reconnect_attempts: .*got 2.5"),
        ({"params": {"speed": 1.2}}, TypeError, "no argument `params`; did you mean `settings`"),
        ({"base_url": "ws://tts"}, TypeError, "no argument `base_url`; did you mean `url`"),
    ],
)
def test_wrong_options_are_refused_where_they_are_given(
    options: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    """Not in the first turn, which would be silent."""
    with pytest.raises(kind, match=sentence):
        VoiceAgentTTSService(**options)


@pytest.mark.parametrize("model", [None, "my-model"])
async def test_metrics_name_the_model(served: ServerProcess, model: str | None) -> None:
    """The server's own, or the one that is given."""
    async with talking(service(served, model=model)) as conversation:
        await speaks(conversation)
        frames = [frame for frame in conversation.frames if isinstance(frame, MetricsFrame)]
        named = {data.model for frame in frames for data in frame.data} - {None, ""}
        assert named == {model or conversation.tts.settings.model}
        assert model or named.pop().startswith("espeak")


async def test_the_environment_names_server_and_key(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the command line; a wrong key is an error that says where it comes from."""
    server = await start_server(api_keys=("right",))
    monkeypatch.setenv("VOICEAGENT_TTS_URL", server.websocket_url)
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "right")
    async with talking(VoiceAgentTTSService(settings=ENGLISH)) as conversation:
        await speaks(conversation)
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "wrong")
    async with talking(VoiceAgentTTSService(settings=ENGLISH)) as conversation:
        await conversation.until(ErrorFrame)
        assert "HTTP 401: expected a valid key; pass `api_key`" in conversation.errors[0].error


async def test_a_proxy_gets_its_headers() -> None:
    """Headers that are given go with the handshake, beside the key."""
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        headers = {"X-Proxy-Key": "door"}
        tts = VoiceAgentTTSService(
            url=f"ws://127.0.0.1:{port}", api_key="key", extra_headers=headers
        )
        async with talking(tts):
            head = await asyncio.wait_for(asked.get(), PATIENCE_S)
    assert b"X-Proxy-Key: door" in head and b"Authorization: Bearer key" in head
