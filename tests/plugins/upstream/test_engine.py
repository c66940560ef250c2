"""The upstream as an engine: an upstream that fails as the test says, and the real worker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.contexts import UNPACED, collect, first, say
from testbed.scripted_upstream import TONE, Answer, ScriptedUpstream
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, AudioChunk, ms_to_samples
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.upstream import engine as upstream_engine
from voiceagent_tts.plugins.upstream.engine import CharBudget
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.synthesizer.events import ContextDone, ContextFailed
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import Supervisor
from voiceagent_tts.word_times.processes import Aligners

pytestmark = pytest.mark.services

TONE_SAMPLES = len(TONE) // 2
SENTENCE_PAUSE_SAMPLES = ms_to_samples(400)
TEXT = "One is here. Two is here. Three is here."

FAULTS = [
    Answer(401, b"{}"),
    Answer(422, b"Hello."),
    Answer(body=b"<html>", headers={"Content-Type": "text/html"}),
    Answer(body=b""),
]
NOT_SPOKEN = "the server behind this voice did not speak the text to its end"

Start = Callable[..., Awaitable[Synthesizer]]


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    """An upstream that answers with tones until it gets a script."""
    yield ScriptedUpstream()


@pytest.fixture
async def start(upstream: ScriptedUpstream) -> AsyncIterator[Start]:
    """Start synthesizers whose engine is the upstream."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(upstream.running())

        async def start(key: str = "", **options: Any) -> Synthesizer:
            spec = WorkerSpec(
                "openai",
                {"url": url, "model": "m", **options},
                environment={"VOICEAGENT_TTS_UPSTREAM_KEY": key},
            )
            workers = {"openai": Supervisor(spec)}
            synthesizer = Synthesizer(workers, make_aligners=lambda: Aligners({}))
            await synthesizer.start()
            stack.push_async_callback(synthesizer.close)
            return synthesizer

        yield start


async def test_each_segment_is_a_request(start: Start, upstream: ScriptedUpstream) -> None:
    """One after the other, with the voice, the instruction and the key; all audio arrives."""
    synthesizer = await start(key="k-1", fields={"lang_code": "a"})
    options = ContextOptions(
        "BERT", "en", SpeechOptions(instruct="calm"), max_lead_s=0, max_buffer_delay_ms=10**6
    )
    spoken = await say(synthesizer, TEXT, options)
    assert spoken.report.reason == "complete"
    assert spoken.samples == 3 * TONE_SAMPLES + 2 * SENTENCE_PAUSE_SAMPLES
    assert [request["input"].strip() for request in upstream.requests] == [
        "One is here.", "Two is here.", "Three is here.",
    ]  # fmt: skip
    for request in upstream.requests:
        assert (request["voice"], request["model"], request["response_format"]) == (
            "bert",
            "m",
            "pcm",
        )
        assert (request["instructions"], request["lang_code"]) == ("calm", "a")
    assert set(upstream.keys) == {"Bearer k-1"}
    assert upstream.most_at_once == 1


async def test_a_failure_before_any_audio_is_tried_again(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Twice, and the listener notices nothing."""
    synthesizer = await start()
    upstream.script += [Answer(503, b"{}"), Answer(body=b"", breaks_off=True)]
    spoken = await say(synthesizer, "Hello.")
    assert (spoken.report.reason, spoken.samples) == ("complete", TONE_SAMPLES)
    assert len(upstream.requests) == 3


async def test_audio_that_breaks_off_is_not_spoken_twice(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """What has arrived is heard, and then the context fails."""
    synthesizer = await start()
    upstream.script.append(Answer(breaks_off=True))
    spoken = await say(synthesizer, "Hello.")
    assert spoken.report.reason == "error"
    assert isinstance(spoken.error, EngineError)
    assert len(upstream.requests) == 1


async def test_no_fault_tells_a_client_of_the_upstream(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Neither its address nor the settings; the next context is spoken."""
    synthesizer = await start()
    for number, answer in enumerate(FAULTS, start=1):
        upstream.script.append(answer)
        spoken = await say(synthesizer, "Hello.")
        assert isinstance(spoken.error, EngineError)
        assert spoken.error.message == NOT_SPOKEN
        assert len(upstream.requests) == number
    assert (await say(synthesizer, "Hello.")).report.reason == "complete"


async def test_an_upstream_that_falls_silent_is_given_up(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Before its answer or in its audio; the text is not sent again, and later ones are spoken."""
    synthesizer = await start(timeout_s=0.5, voices=["anna"])
    for number, answer in enumerate((Answer(is_silent=True), Answer(hangs=True)), start=1):
        upstream.script.append(answer)
        spoken = await say(synthesizer, "Hello.")
        assert isinstance(spoken.error, EngineError)
        await until(lambda n=number: upstream.closed_by_client == n, "the request has ended")
        assert len(upstream.requests) == number
    while (await say(synthesizer, "Hello.")).error is not None:
        """The upstream, which is this process, was held up for longer."""


async def test_a_limit_with_a_senseless_wait_fails_the_context(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """The context ends, and does not wait forever for what was not understood."""
    synthesizer = await start()
    for seconds in ("inf", "nan", "-1", "soon"):
        upstream.script.clear()
        upstream.script += [Answer(429, b"{}", {"Retry-After": seconds})] * 3
        async with asyncio.timeout(PATIENCE_S):
            spoken = await say(synthesizer, "Hello.")
        assert spoken.report.code is ErrorCode.OVERLOADED, seconds
        assert not synthesizer.rows_used


async def test_a_limit_of_the_upstream_reaches_the_client(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """With the time after which it may come again."""
    synthesizer = await start()
    headers = {"Retry-After": "30"}
    upstream.script.append(Answer(429, b"{}", headers))
    error = (await say(synthesizer, "Hello.")).error
    assert isinstance(error, OverloadedError)
    assert (error.code, error.retry_after_ms) == (ErrorCode.OVERLOADED, 30_000)


async def test_a_cancel_closes_the_request(start: Start, upstream: ScriptedUpstream) -> None:
    """At once, also while audio is still being made."""
    synthesizer = await start()
    upstream.script.append(Answer(hangs=True))
    context = await synthesizer.open(UNPACED)
    context.push_text("Hello there. ")
    assert isinstance(await first(context, AudioChunk), AudioChunk)
    context.cancel()
    await until(lambda: upstream.closed_by_client == 1, "the connection is closed")
    assert (await collect(context)).report.reason == "cancelled"


async def test_no_more_than_its_rows_are_asked_at_once(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """A context beyond them is refused."""
    synthesizer = await start(rows=2)
    upstream.script += [Answer(hangs=True)] * 2
    contexts = [await synthesizer.open(UNPACED) for _ in range(2)]
    for context in contexts:
        context.push_text("Hello there. ")
    await until(lambda: upstream.most_at_once == 2, "both are asked")
    with pytest.raises(OverloadedError):
        await synthesizer.open(UNPACED)
    for context in contexts:
        context.abandon()


async def test_half_a_sample_at_the_end_is_dropped(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """The audio ends with its last whole sample."""
    synthesizer = await start()
    upstream.script.append(Answer(body=TONE + b"\x01"))
    assert (await say(synthesizer, "Hello.")).samples == TONE_SAMPLES


async def test_silence_before_the_first_sound_is_left_out(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Unless the client wants it."""
    synthesizer = await start()
    upstream.script += [Answer(body=bytes(len(TONE)) + TONE)] * 2
    assert (await say(synthesizer, "Hello.")).samples == TONE_SAMPLES
    options = ContextOptions(language="en", speech=SpeechOptions(keeps_silence=True), max_lead_s=0)
    assert (await say(synthesizer, "Hello.", options)).samples == 2 * TONE_SAMPLES


@pytest.mark.parametrize(
    ("after_ms", "before_ms", "pause_ms"),
    [(0, 0, 400), (150, 100, 400), (0, 400, 400), (700, 50, 700)],
)
async def test_sentences_are_parted_by_one_pause(
    after_ms: int, before_ms: int, pause_ms: int, start: Start, upstream: ScriptedUpstream
) -> None:
    """An upstream's own silence after the first and before the second counts, and is not doubled.

    The last sentence is followed by what the upstream sends alone.
    """
    synthesizer = await start()
    after, before = silence(after_ms), silence(before_ms)
    upstream.script += [Answer(body=TONE + after), Answer(body=before + TONE + after)]
    spoken = await say(synthesizer, "One is here. Two is here.")
    assert spoken.pcm == TONE + silence(pause_ms) + TONE + after


async def test_a_text_that_goes_on_within_a_clause_has_no_pause(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Where it is flushed after a word; after a comma the pause is shorter than a sentence's."""
    synthesizer = await start()
    for text, pause_ms in (("One is here", 0), ("One is here,", 200)):
        context = await synthesizer.open(UNPACED)
        context.push_text(text)
        context.flush(1)
        context.push_text(" and here.")
        context.finish()
        chunks = [event.pcm async for event in context if isinstance(event, AudioChunk)]
        assert b"".join(chunks) == TONE + silence(pause_ms) + TONE, text


def silence(ms: int) -> bytes:
    return bytes(ms_to_samples(ms) * BYTES_PER_SAMPLE)


async def test_the_upstream_is_not_read_beyond_the_credit(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """A listener's context gets what it will play soon."""
    synthesizer = await start()
    upstream.script.append(Answer(body=40 * TONE))
    context = await synthesizer.open(ContextOptions(language="en", max_lead_s=0.5))
    context.push_text("Hello.")
    context.finish()
    chunk = await first(context, AudioChunk)
    assert isinstance(chunk, AudioChunk)
    assert chunk.end_sample <= SAMPLE_RATE_HZ
    context.cancel()
    assert (await collect(context)).report.reason == "cancelled"


async def test_voices_come_from_the_upstream_or_the_settings(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """Without either, they are OpenAI's; an unknown one is refused before any request."""
    assert (await start()).voices.names() == ["anna", "bert"]
    assert (await start(voices=["carl"])).voices.names() == ["carl"]
    upstream.voices = None
    synthesizer = await start()
    assert synthesizer.voices.names()[0] == "alloy"
    with pytest.raises(InvalidRequestError):
        await synthesizer.open(ContextOptions("anna"))


async def test_an_upstream_that_is_not_there_ends_the_start(free_port: int) -> None:
    """With its address."""
    spec = WorkerSpec("openai", {"url": f"http://127.0.0.1:{free_port}/v1", "model": "m"})
    with pytest.raises(EngineError, match="cannot be reached"):
        await Synthesizer({"openai": Supervisor(spec)}).start()


def test_a_new_day_has_new_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day begins with its first character."""
    clock = SimpleNamespace(monotonic=lambda: 500.0)
    monkeypatch.setattr(upstream_engine, "time", clock)
    budget = CharBudget(10)
    budget.check(10)
    budget.spend(10)
    with pytest.raises(OverloadedError):
        budget.check(1)
    clock.monotonic = lambda: 500.0 + 86_400
    budget.check(10)


async def test_the_characters_of_a_day_are_limited(start: Start) -> None:
    """Text beyond them is refused as overloaded, with the time until there are more."""
    synthesizer = await start(chars_per_day=20)
    assert (await say(synthesizer, "Hello there.")).report.reason == "complete"
    error = (await say(synthesizer, "Hello there.")).error
    assert isinstance(error, OverloadedError) and "VOICEAGENT" not in error.message
    assert 86_000_000 < (error.retry_after_ms or 0) <= 86_400_000


async def test_an_overflow_whose_upstream_is_away_starts_later(
    upstream: ScriptedUpstream, free_port: int
) -> None:
    """The server starts without it, and uses it once the upstream is there."""
    spec = WorkerSpec("openai", {"url": f"http://127.0.0.1:{free_port}/v1", "model": "m"})
    overflow = Supervisor(spec)
    await overflow.start(is_required=False)
    try:
        assert overflow.free_worker is None
        async with upstream.running(free_port):
            await until(lambda: overflow.free_worker is not None, "the worker has started")
    finally:
        await overflow.close()
    assert overflow.free_worker is None


async def test_text_that_comes_after_the_end_of_a_day_is_spoken(start: Start) -> None:
    """A reply that had begun before is not cut off in its middle; one that begins is refused."""
    synthesizer = await start(chars_per_day=20)
    reply = await synthesizer.open(UNPACED)
    reply.push_text("Hello there. ")
    reply.flush(1)
    await first(reply, AudioChunk)
    other = await say(synthesizer, "This is too much.")
    assert isinstance(other.error, OverloadedError)
    reply.push_text("This goes on beyond the limit.")
    reply.finish()
    *before, done = [event async for event in reply]
    assert isinstance(done, ContextDone) and done.report.reason == "complete"
    assert not any(isinstance(event, ContextFailed) for event in before)
    chunks = [event for event in before if isinstance(event, AudioChunk)]
    assert chunks[-1].end_sample == 2 * TONE_SAMPLES + SENTENCE_PAUSE_SAMPLES
