"""Model Studio's realtime API as an engine: a server that speaks as documented, a real worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from testbed.contexts import UNPACED, collect, first, say
from testbed.scripted_realtime import Script, ScriptedRealtime
from testbed.scripted_time import run_scripted
from testbed.scripted_upstream import TONE
from testbed.waiting import until
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.worker_client import WorkerSpec
from voiceagent_tts.upstream.download import Download
from voiceagent_tts.upstream.realtime import RealtimeSpeech
from voiceagent_tts.upstream.realtime_api import RealtimeAPI
from voiceagent_tts.upstream.speech_api import SpeechRequest

pytestmark = pytest.mark.services

TONE_SAMPLES = len(TONE) // 2
TEXT = "One is here. Two is here. Three is here."
MODEL = "qwen3-tts-flash-realtime"

FAULTS = [
    (Script(error="InvalidApiKey"), "refuses the key"),
    (Script(error="invalid_value"), "the error invalid_value: it does not accept"),
    (Script(error="Hello. <script>"), "without a code"),
    (Script(pcm=b""), "sent no audio"),
    (Script(pcm=b"", hangs=True), "sent nothing for 0.5 s"),
    (Script(hangs=True), "sent nothing for 0.5 s"),
    (Script(breaks_off=True), "broke off"),
    (Script(sends="Hello."), "not expected"),
    (Script(sends=b"\x00\xff"), "not expected"),
    (Script(sends="[1]"), "not expected"),
    (Script(sends='{"type": "response.video.delta"}'), "not expected: response.video.delta"),
    (Script(sends='{"type": "response.audio.delta", "delta": "%"}'), "response.audio.delta"),
    (Script(sends='{"type": "response.audio.delta"}'), "response.audio.delta"),
]

Start = Callable[..., Awaitable[Synthesizer]]


@pytest.fixture
def service() -> ScriptedRealtime:
    """A service that answers with tones until it gets a script."""
    return ScriptedRealtime()


@pytest.fixture
async def start(service: ScriptedRealtime) -> AsyncIterator[Start]:
    """Start synthesizers whose engine is the service."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(service.running())

        async def start(key: str = "", **options: Any) -> Synthesizer:
            spec = WorkerSpec(
                "dashscope",
                {"url": url, "model": MODEL, **options},
                environment={"VOICEAGENT_TTS_UPSTREAM_KEY": key},
            )
            synthesizer = Synthesizer({"dashscope": Supervisor(spec)})
            await synthesizer.start()
            stack.push_async_callback(synthesizer.close)
            service.paths.clear()
            service.keys.clear()
            return synthesizer

        yield start


async def test_the_segments_of_a_voice_share_a_session(
    start: Start, service: ScriptedRealtime
) -> None:
    """With key, model, voice and language; all audio arrives, also in the next context."""
    synthesizer = await start(key="k-1", fields={"volume": 60})
    options = replace(UNPACED, voice="ethan", speech=SpeechOptions(instruct="calm"))
    for _ in range(2):
        spoken = await say(synthesizer, TEXT, options)
        assert (spoken.report.reason, spoken.samples) == ("complete", 3 * TONE_SAMPLES)
    assert [text.strip() for text in service.texts] == 2 * [
        "One is here.", "Two is here.", "Three is here.",
    ]  # fmt: skip
    assert service.sessions == [
        {
            "voice": "Ethan",
            "mode": "commit",
            "language_type": "English",
            "response_format": "pcm",
            "sample_rate": 24_000,
            "volume": 60,
        }
    ]
    assert service.paths == [f"/api-ws/v1/realtime?model={MODEL}"]
    assert service.keys == ["Bearer k-1"]


async def test_another_voice_or_language_has_another_session(
    start: Start, service: ScriptedRealtime
) -> None:
    """Only a model that follows instructions is sent them."""
    synthesizer = await start(model="qwen3-tts-instruct-flash-realtime")
    for options in (
        UNPACED,
        replace(UNPACED, voice="Ryan"),
        replace(UNPACED, language="de"),
        replace(UNPACED, speech=SpeechOptions(instruct="calm")),
    ):
        await say(synthesizer, "Hello.", options)
    found = [(s["voice"], s["language_type"], s.get("instructions")) for s in service.sessions]
    assert found == [
        ("Cherry", "English", None),
        ("Ryan", "English", None),
        ("Cherry", "German", None),
        ("Cherry", "English", "calm"),
    ]
    with pytest.raises(InvalidRequestError):
        await synthesizer.open(ContextOptions("anna"))


async def test_a_session_that_has_ended_is_replaced(
    start: Start, service: ScriptedRealtime
) -> None:
    """One that the service closes after a text, and one that breaks before any audio."""
    synthesizer = await start()
    service.script += [Script(closes_after=True), Script(), Script(pcm=b"", breaks_off=True)]
    for _ in range(3):
        spoken = await say(synthesizer, "Hello.")
        assert (spoken.report.reason, spoken.samples) == ("complete", TONE_SAMPLES)
    assert len(service.sessions) == 3 and len(service.texts) == 4


async def test_a_busy_service_is_tried_again(start: Start, service: ScriptedRealtime) -> None:
    """Then the client learns that there is a limit."""
    synthesizer = await start()
    service.refusals += [503, 429]
    assert (await say(synthesizer, "Hello.")).report.reason == "complete"
    service.script.append(Script(error="Throttling.RateQuota"))
    error = (await say(synthesizer, "Hello.")).error
    assert isinstance(error, OverloadedError) and error.code is ErrorCode.OVERLOADED


async def test_each_fault_has_a_clear_error(start: Start, service: ScriptedRealtime) -> None:
    """Without the text; the next context is spoken."""
    synthesizer = await start(timeout_s=0.5)
    for script, part in FAULTS:
        service.script.append(script)
        spoken = await say(synthesizer, "Hello.")
        assert isinstance(spoken.error, EngineError), part
        assert part in spoken.error.message
        assert "Hello" not in spoken.error.message
    assert (await say(synthesizer, "Hello.")).report.reason == "complete"


@pytest.mark.parametrize(("status", "part"), [(401, "refuses the key"), (404, "HTTP 404")])
async def test_a_wrong_key_ends_the_start(
    service: ScriptedRealtime, status: int, part: str
) -> None:
    """As does an address of something else."""
    service.refusals.append(status)
    async with service.running() as url:
        spec = WorkerSpec("dashscope", {"url": url, "model": MODEL})
        with pytest.raises(EngineError, match=part):
            await Synthesizer({"dashscope": Supervisor(spec)}).start()


async def test_a_cancel_closes_the_session(start: Start, service: ScriptedRealtime) -> None:
    """At once, also while audio is still being made."""
    synthesizer = await start()
    before = service.closed_by_client
    service.script.append(Script(hangs=True))
    context = await synthesizer.open(UNPACED)
    context.push_text("Hello there. ")
    assert isinstance(await first(context, AudioChunk), AudioChunk)
    context.cancel()
    await until(lambda: service.closed_by_client > before, "the session is closed")
    assert (await collect(context)).report.reason == "cancelled"


def test_a_session_ends_when_it_has_waited_for_twenty_seconds(service: ScriptedRealtime) -> None:
    """Counted from its last text: a session that is used every fifteen seconds stays open."""

    async def speak_now_and_then() -> None:
        async with service.running() as url:
            speech = RealtimeSpeech(RealtimeAPI(url, MODEL), None, timeout_s=5.0)
            for _ in range(4):
                download = Download(24_000)
                assert (
                    await speech.attempt(SpeechRequest("Hello.", "Cherry"), download, None) is None
                )
                assert service.closed_by_client == 0
                await asyncio.sleep(15.0)
            assert len(service.sessions) == 1
            await asyncio.sleep(6.0)
            assert service.closed_by_client == 1
            await speech.close()

    run_scripted(speak_now_and_then())


async def test_the_characters_of_a_day_are_limited(start: Start) -> None:
    """As for any upstream."""
    synthesizer = await start(chars_per_day=20)
    assert (await say(synthesizer, "Hello there.")).report.reason == "complete"
    assert isinstance((await say(synthesizer, "Hello there.")).error, OverloadedError)


async def test_the_official_client_is_served_alike(service: ScriptedRealtime) -> None:
    """The messages of the service's own package `dashscope` 2.0.2 get the same answers.

    They are written here as that package sends them, so that the scripted service is held to more
    than our own client.
    """
    from websockets.asyncio.client import connect

    config = {
        "voice": "Cherry", "mode": "commit", "response_format": "pcm", "sample_rate": 24_000,
    }  # fmt: skip
    sent = [
        {"event_id": "event_1", "type": "session.update", "session": config},
        {"event_id": "event_2", "type": "input_text_buffer.append", "text": "Hello."},
        {"event_id": "event_3", "type": "input_text_buffer.commit"},
    ]
    async with service.running() as url, connect(f"{url}?model={MODEL}") as session:
        for event in sent:
            await session.send(json.dumps(event))
        kinds: list[str] = []
        while "response.done" not in kinds:
            kinds.append(json.loads(await session.recv())["type"])
    assert list(dict.fromkeys(kinds)) == [
        "session.created", "session.updated", "input_text_buffer.committed", "response.created",
        "response.output_item.added", "response.content_part.added", "response.audio.delta",
        "response.audio.done", "response.content_part.done", "response.output_item.done",
        "response.done",
    ]  # fmt: skip
