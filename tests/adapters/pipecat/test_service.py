"""The Pipecat service: its options, settings, metrics and events, and its contexts on a server."""

import asyncio
import copy
import inspect
import re
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    MetricsFrame,
    StopFrame,
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
from pipecat.processors.metrics.frame_processor_metrics import FrameProcessorMetrics
from pipecat.services.cartesia.tts import CartesiaTTSService, GenerationConfig
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService

from testbed.listening import words_of
from testbed.papers import table_rows
from testbed.pipecat_conversation import (
    Loudspeaker,
    Passing,
    cut,
    history,
    reply,
    talking,
)
from testbed.scripted_server import whole
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.server.serve import RunningServer, running

PAGE = "docs/pipecat.md"
ENGLISH = VoiceAgentTTSService.Settings(voice="default", language="en")
COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
FOREIGN = CartesiaTTSService.Settings(voice="nova", generation_config=GenerationConfig(speed=1.3))
"""Settings of another service, with a field that this one does not have."""


def service(server: RunningServer | ServerProcess, **options: Any) -> VoiceAgentTTSService:
    """A service for `server`, in English by default."""
    return VoiceAgentTTSService(url=server.websocket_url, **{"settings": ENGLISH} | options)


# A real server.


async def test_cuts_of_a_slow_engine_are_exact(start_server: StartServer) -> None:
    """Wherever the user interrupts, the history has exactly the words whose audio had started."""
    server = await start_server(throttle={"rtf": 1 / 1.2})
    words = await words_of(server.websocket_url, COUNTING, voice="default", language="en")
    starts_s = [word.start_sample / SAMPLE_RATE_HZ for word in words]

    async def cut_at(at_s: float) -> tuple[str, str]:
        async with talking(service(server)) as talk:
            await talk.push(*reply(COUNTING))
            await talk.played(at_s)
            committed = await talk.interrupt()
            heard_s = talk.loudspeaker.played_samples[0] / SAMPLE_RATE_HZ - 0.02
        count = sum(start_s <= heard_s for start_s in starts_s)
        return committed, COUNTING[: words[count - 1].word.char_end]

    for before, after in zip(starts_s[1:7:2], starts_s[2:7:2], strict=True):
        attempt = partial(cut_at, (before + after) / 2)
        committed, heard = await undisturbed(attempt, holds=lambda texts: texts[0] == texts[1])
        assert committed == heard


async def test_interruptions_leave_nothing_on_the_server(server: RunningServer) -> None:
    """Nor does a reply without text, or one cut before its first word; one socket carries all."""
    active = server.state.synthesizer
    async with talking(service(server)) as talk:
        assert await talk.spoken("") == ""
        await talk.push(reply("")[0])
        await until(lambda: active.contexts_active > 0, "it prepares")
        assert await talk.interrupt() == ""
        for _ in range(20):
            await talk.push(*reply(COUNTING))
            await talk.interrupt()
        assert await talk.spoken("Yes, I can.") == "Yes, I can."
        await until(lambda: active.contexts_active == 0, "no context is left")
        assert len(server.state.sessions) == 1 and not talk.errors
    assert [frame async for frame in talk.service.run_tts("Goodbye.", "late")] == [None]
    await until(lambda: not server.state.sessions, "no socket is left")


async def test_a_reply_that_cannot_be_spoken_is_an_error_and_not_in_the_history(
    served: ServerProcess,
) -> None:
    """The English voice has no sound for these digits."""
    async with talking(service(served)) as talk:
        assert await talk.spoken("९८७") == ""
        assert await talk.spoken("Yes, I can.") == "Yes, I can."
        assert [error.error.partition(":")[0] for error in talk.errors] == ["text_unspeakable"]


async def test_a_reply_longer_than_the_server_takes_at_once_is_whole(
    start_server: StartServer,
) -> None:
    """The turn sends its text as the server speaks."""
    server = await start_server(max_text_chars=60)
    settings = VoiceAgentTTSService.Settings(language="en", speed=4.0)
    text = "It goes on and on. " * 12 + "😊 " * 9 + "It ends."
    async with talking(service(server, settings=settings)) as talk:
        assert await talk.spoken(text) == text
        assert not talk.errors


async def test_a_server_that_comes_later_is_found(free_port: int) -> None:
    """The pipeline may start before the server; the service connects when the server runs."""
    tts = VoiceAgentTTSService(url=f"ws://127.0.0.1:{free_port}/v1/tts/ws", settings=ENGLISH)
    events: list[str] = []

    @tts.event_handler("on_connection_error")
    async def on_connection_error(_: object, error: str) -> None:
        events.append(error)

    @tts.event_handler("on_connected")
    async def on_connected(_: object) -> None:
        events.append("connected")

    @tts.event_handler("on_disconnected")
    async def on_disconnected(_: object) -> None:
        events.append("disconnected")

    async with talking(tts) as talk:
        await until(lambda: bool(events), "it has tried")
        async with running(Settings(port=free_port)):
            assert await talk.spoken("Yes, I can.") == "Yes, I can."
    remedy = "start one with `voiceagent-tts serve`"
    refusal = f"no server at 127.0.0.1:{free_port}; {remedy}"
    assert events[0] == refusal and events[-2:] == ["connected", "disconnected"]


@pytest.mark.parametrize("end", [EndFrame, StopFrame])
async def test_a_service_speaks_in_one_pipeline_after_another(
    server: RunningServer, end: type[Frame]
) -> None:
    """As Pipecat's own services do; nothing of the first one is left."""
    speaker = service(server)
    for text in ("Yes, I can.", "And so on."):
        async with talking(speaker) as talk:
            await talk.push(*reply(text))
            await talk.played(0.1)
            assert await talk.spoken() == text
            await talk.push(end())
            await asyncio.wait_for(talk.ended, PATIENCE_S)
            assert not talk.errors
        await until(lambda: len(server.state.sessions) == (end is StopFrame), "it has left")
    await speaker.cleanup()
    await until(lambda: not server.state.sessions, "no socket is left")


async def test_a_warning_of_the_server_is_logged_once(
    served: ServerProcess, logged: list[str]
) -> None:
    """It says which option has no effect; it does not come again with the next turn."""
    settings = replace(ENGLISH, instruct="whisper")
    async with talking(service(served, settings=settings)) as talk:
        for text in ("Yes, I can.", "And so on."):
            assert await talk.spoken(text) == text
        assert not talk.errors
    (warning,) = [line for line in logged if "instruct_ignored" in line]
    assert "`instruct` has no effect" in warning


@pytest.mark.parametrize(
    ("options", "model"),
    [({}, None), ({"model": "mine", "text_aggregation_mode": "token"}, "mine")],
)
async def test_each_turn_is_measured_once(
    served: ServerProcess, options: dict[str, Any], model: str | None
) -> None:
    """One time to first byte and to first audio; the model is the server's, or the one given.

    Tokens are measured as one text: their characters once, and nobody collects them.
    """
    passing = Passing()
    async with talking(service(served, **options), between=[passing]) as talk:
        for _ in range(2):
            await talk.spoken("Yes, ", "I ", "can.")
        frames = [each for each in passing.frames if isinstance(each, MetricsFrame)]
        data = [each for frame in frames for each in frame.data]
        server_model = talk.service.settings.model
    assert sum(isinstance(d, TTFBMetricsData) and d.value > 0 for d in data) == 2
    assert sum(isinstance(d, TTFAMetricsData) and d.ttfa > 0 for d in data) == 2
    assert not any(d.value for d in data if isinstance(d, ProcessingMetricsData))
    counts = [d.value for d in data if isinstance(d, TTSUsageMetricsData)]
    assert sum(counts) == 2 * len("Yes, I can.") and (not model or len(counts) == 2)
    assert not (model and any(isinstance(d, TextAggregationMetricsData) for d in data))
    assert {d.model for d in data} - {None, ""} == {model or server_model}
    assert model or (server_model or "").startswith("espeak")


# The wire of a scripted server.


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 44_100])
def test_the_samples_are_the_servers_at_the_rate_of_the_pipeline(rate_hz: int) -> None:
    """No sample is lost, doubled or changed between the server and a transport of that rate."""
    speaker = Loudspeaker()
    spoken = whole(3)
    outcome = history(spoken, (0.0, reply("a b c")), (3.0, []), loudspeaker=speaker,
                      sample_rate=rate_hz)  # fmt: skip
    assert outcome.server.opened[0].audio.sample_rate == rate_hz
    if rate_hz == SAMPLE_RATE_HZ:
        assert bytes(speaker.pcm).rstrip(b"\0") == spoken.steps[0].pcm.rstrip(b"\0")


@pytest.mark.parametrize("tokens", [[], ["a"], ["a b c, ", "d"]])
async def test_a_second_pipeline_says_nothing_of_the_first(
    served: ServerProcess, tokens: list[str]
) -> None:
    """A `StopFrame` has ended that within a reply, of which the LLM's last words wait."""
    tts = service(served)
    async with talking(tts) as talk:
        begin, *texts, _ = reply(*tokens)
        await talk.push(begin, *texts, StopFrame())
        async with asyncio.timeout(PATIENCE_S):
            await talk.ended
    async with talking(tts) as talk:
        assert await talk.spoken("Yes, I can.") == "Yes, I can."
        assert talk.messages == ["Yes, I can."] and not talk.errors


def test_the_event_on_words_has_their_places_in_the_turn() -> None:
    """Ahead of playback, with the positions of the whole turn."""
    told: list[tuple[str, int]] = []

    async def listen(talk: Any) -> None:
        @talk.service.event_handler("on_words")
        async def on_words(_: object, context_id: str, words: list[Any]) -> None:
            told.extend((each.word.text, each.start_sample) for each in words)

    lost = replace(whole(2), end_s=60.0)
    acts = (
        (0.0, listen),
        (0.0, reply("a b c d")),
        (0.3, lambda talk: talk.server.drop_connections()),
    )
    history(whole(2), *acts, (5.0, []), first=[lost])
    assert told == [("a", 0), ("b", 7_200), ("c", 14_400), ("d", 21_600)]


@pytest.mark.parametrize("mode", list(TextAggregationMode))
def test_a_trailing_space_divides_no_word(mode: TextAggregationMode) -> None:
    """The pieces of a reply have its own white space."""
    options: dict[str, Any] = {"append_trailing_space": True, "text_aggregation_mode": mode}
    outcome = history(whole(1), (0.0, reply("Tues", "day")), (3.0, []), **options)
    assert (outcome.server.texts, outcome.messages) == (["Tuesday"], ["Tuesday"])


def test_in_direct_mode_the_history_ends_with_what_was_heard() -> None:
    """Frames are then processed where they are pushed."""
    outcome = cut(reply("a b c d"), whole(4), 0.5, enable_direct_mode=True)
    assert outcome.messages == ["a b"]


# Arguments of Pipecat's classes: each is honoured or refused.

HONOURED: dict[str, Any] = {
    "aggregate_sentences": False,
    "append_trailing_space": True,
    "enable_direct_mode": True,
    "metrics": FrameProcessorMetrics(),
    "name": "voice",
    "pause_watchdog_timeout_s": 1.0,  # Pipecat ignores it
    "sample_rate": 16_000,
    "settings": VoiceAgentTTSService.Settings(voice="nova"),
    "skip_aggregator_types": ["code"],
    "skip_text_types": ["code"],
    "task_manager": None,  # a pipeline sets it
    "text_aggregation_mode": TextAggregationMode.TOKEN,
    "text_filters": [],
    "text_transforms": [],
    "transport_destination": "phone",
}
"""Arguments of Pipecat's classes that a user may choose."""

REFUSED: dict[str, Any] = {
    "max_consecutive_zero_audio_contexts": 1,  # a turn that fails reports its own error
    "pause_frame_processing": True,
    "push_silence_after_stop": True,  # no context that is played has it
    "push_start_frame": False,
    "push_stop_frames": True,
    "push_text_frames": True,
    "reuse_context_id_within_turn": False,  # a turn is one context
    "silence_time_s": 1.0,
    "stop_frame_timeout_s": 1.0,  # or a turn would end while it is resumed
}
"""Those on which the order of the service's frames, or the end of its turns, depends."""


def test_each_argument_of_pipecat_is_in_one_of_the_tables() -> None:
    """One that Pipecat adds is refused until it is."""
    constructors = [vars(each).get("__init__") for each in TTSService.__mro__[:-1]]
    parameters = [
        each for some in filter(None, constructors) for each in inspect.signature(some).parameters
    ]
    assert HONOURED.keys() | REFUSED.keys() == {*parameters} - {"self", "kwargs"}
    for name, value in HONOURED.items():
        VoiceAgentTTSService(**{name: value})
    for name, value in REFUSED.items():
        with pytest.raises(TypeError, match=f"VoiceAgentTTSService sets `{name}` itself"):
            VoiceAgentTTSService(**{name: value})


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"speed": 9.0}, InvalidRequestError, "speed: .*less than or equal to 4; got 9"),
        ({"response_timeout_s": 0}, InvalidRequestError, "response_timeout_s: .* above 0, got 0"),
        ({"max_lead_s": float("nan")}, InvalidRequestError, "max_lead_s: .*; got NaN"),
        ({"text_aggregation_mode": "tokens"}, ValueError, "'tokens' is not a valid"),
        ({"output_latency_s": float("nan")}, InvalidRequestError, "output_latency_s: .*got nan"),
        ({"extra_headers": {"X": "a\nb"}}, InvalidRequestError, "extra_headers: .* as X, got"),
        ({"sample_rate": "24000"}, InvalidRequestError, "sample_rate: .*got '24000'"),
        ({"model": 5}, InvalidRequestError, "model: expected a string, got int"),
        ({"settings": {"voice": "x"}}, InvalidRequestError, "settings: .*`Settings`.*got dict"),
        ({"text_aggregator": "x"}, InvalidRequestError, "text_aggregator: expected .*, got str"),
        ({"reconnect_attempts": 2.5}, InvalidRequestError, "reconnect_attempts: .*got 2.5"),
        ({"params": {"speed": 1.2}}, TypeError, "no argument `params`; did you mean `settings`"),
        ({"base_url": "ws://tts"}, TypeError, "no argument `base_url`; did you mean `url`"),
        ({"speeed": 1.2}, TypeError, "has no argument `speeed`.*`speed`"),
        ({"voice": "en", "voice_id": "de"}, ValueError, "`voice` or `voice_id`, got both"),
        ({"settings": FOREIGN}, ValueError, "fields of this service .*; got generation_config"),
        *(({"settings": VoiceAgentTTSService.Settings(extra={name: None})}, ValueError,
           rf"settings\.extra: expected .*leading_silence.*; got {name}")
          for name in ("timestamps", "audio", "pitch")),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_where_they_are_given(
    options: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    """Not in the first turn, which would be silent."""
    with pytest.raises(kind, match=sentence):
        VoiceAgentTTSService(**options)


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ({"model": "qwen3-tts", "voice": "nova"}, None, {"model": "qwen3-tts", "voice": "nova"}),
        ({"voice_id": "nova", "speed": 1.2}, None, {"voice": "nova", "speed": 1.2}),
        ({"lexicon": {"nginx": "engine x"}, "markup": True}, None,
         {"lexicon": {"nginx": "engine x"}, "markup": True}),
        ({"voice": "nova", "speed": 1.2}, VoiceAgentTTSService.Settings(voice="en"),
         {"voice": "en", "speed": 1.2}),
        ({}, CartesiaTTSService.Settings(voice="nova", language="de"),
         {"voice": "nova", "language": "de"}),
    ],
)  # fmt: skip
def test_settings_may_be_arguments(
    arguments: dict[str, Any], settings: Any, expected: dict[str, Any]
) -> None:
    """As Pipecat's own services take them; those of another service mean the same."""
    tts = VoiceAgentTTSService(settings=settings, **arguments)
    given = {name: value for name, value in vars(tts.settings).items() if value is not None}
    assert {name: given[name] for name in expected} == expected


async def test_a_wrong_change_changes_nothing(served: ServerProcess) -> None:
    """It is an error of its frame, not of all turns that follow."""
    async with talking(service(served)) as talk:
        for delta, sentence in (
            (VoiceAgentTTSService.Settings(speed=9.0, voice="nobody"), "speed: "),
            (VoiceAgentTTSService.Settings(voice="nobody", extra={"pitch": 2}), "got pitch"),
            (FOREIGN, "got generation_config"),
        ):
            talk.errors.clear()
            await talk.push(TTSUpdateSettingsFrame(delta=delta))
            await until(lambda: bool(talk.errors), "it is refused")
            assert sentence in talk.errors[0].error
        assert await talk.spoken("Yes, I can.") == "Yes, I can."
        assert len(talk.errors) == 1
        assert talk.service.settings.voice == "default"


@pytest.mark.parametrize("place", ["before a reply", "within a reply", "utterances"])
@pytest.mark.parametrize(
    "wrong",
    [
        VoiceAgentTTSService.Settings(voice="6f84f4b8-58a2-430c-8c79-688dad597532"),
        VoiceAgentTTSService.Settings(language="de", extra={"text_feeding": "token"}),
    ],
    ids=["voice", "option"],
)
async def test_settings_that_only_the_server_can_refuse_change_nothing(
    served: ServerProcess, wrong: VoiceAgentTTSService.Settings, place: str
) -> None:
    """It refuses the next text; that is one error, and all text is spoken as before."""
    change = TTSUpdateSettingsFrame(delta=wrong)
    async with talking(service(served)) as talk:
        before = copy.deepcopy(vars(talk.service.settings))
        if place == "utterances":
            await talk.push(change, TTSSpeakFrame("Yes."), TTSSpeakFrame("No."))
            assert [await talk.spoken(), await talk.spoken()] == ["Yes.", "No."]
        elif place == "before a reply":
            await talk.push(change)
            assert await talk.spoken("Yes, I can.") == "Yes, I can."
        else:
            begin, text, *rest = reply("Yes, ", "I can.")
            await talk.push(begin, text, change, *rest)
            assert await talk.spoken() == "Yes, I can."
        assert await talk.spoken("Of course.") == "Of course."
        assert "; the settings before stay" in talk.errors[0].error and len(talk.errors) == 1
        assert vars(talk.service.settings) | {"model": None} == before | {"model": None}
        good = VoiceAgentTTSService.Settings(voice="nova")
        await talk.push(TTSUpdateSettingsFrame(delta=good))
        assert await talk.spoken("Of course.") == "Of course."
        assert talk.service.settings.voice == "nova" and len(talk.errors) == 1


def test_extra_options_are_in_every_context() -> None:
    """Also those that are arguments of the service, which a change of settings may override."""
    settings = VoiceAgentTTSService.Settings(extra={"max_lead_s": 0.5, "cache": False})
    acts = (0.0, [TTSSpeakFrame("a")]), (2.0, [])
    outcome = history(whole(1), *acts, settings=settings, max_lead_s=2.0, max_buffer_delay_ms=100)
    opened = outcome.server.opened[0]
    assert (opened.max_lead_s, opened.cache, opened.max_buffer_delay_ms) == (0.5, False, 100)


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


async def test_the_environment_names_server_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the command line; headers that are given go with the handshake, beside the key."""
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        address = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("VOICEAGENT_TTS_URL", address)
        monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "key")
        async with talking(VoiceAgentTTSService(extra_headers={"X-Proxy-Key": "door"})):
            head = await asyncio.wait_for(asked.get(), PATIENCE_S)
    assert b"X-Proxy-Key: door" in head and b"Authorization: Bearer key" in head


# docs/pipecat.md.


def test_every_option_is_documented() -> None:
    """The tables have the constructor's named arguments, the fields of `Settings`, the events."""
    parameters = inspect.signature(VoiceAgentTTSService.__init__).parameters.values()
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    defaults = {row[0]: row[1] for row in table_rows(PAGE, "argument")}
    assert [*defaults] == [each.name for each in named]
    for each in named:
        if each.default is not None:
            assert defaults[each.name] == f"{each.default}".removesuffix(".0")
    documented = {row[0] for row in table_rows(PAGE, "field of `Settings`")}
    assert documented | {"extra"} == {field.name for field in fields(VoiceAgentTTSService.Settings)}
    events = [name.strip("` ") for row in table_rows(PAGE, "event") for name in row[0].split(",")]
    assert "on_words" in events
    assert set(events) <= VoiceAgentTTSService()._event_handlers.keys()


def test_the_table_for_users_of_cartesias_service_is_complete() -> None:
    """What it has not is accepted here; what it has is no argument, but for the voice."""
    theirs = [*inspect.signature(CartesiaTTSService.__init__).parameters.values()][1:]
    names = {each.name for each in theirs if each.kind is each.KEYWORD_ONLY}
    names |= {each.name for each in fields(CartesiaTTSService.Settings)} - {"extra"}
    rows = table_rows(PAGE, "of Cartesia's service")
    told = {name for row in rows for name in re.findall(r"\w+", row[0])} & names
    assert told > {"voice", "encoding"}
    VoiceAgentTTSService(**dict.fromkeys(names - told))
    for name in told - {"voice"}:
        with pytest.raises(TypeError, match=f"no argument `{name}`"):
            VoiceAgentTTSService(**{name: "x"})
