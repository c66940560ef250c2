"""Word times of engines that report none: a real server, its aligners, and a client that plays."""

import os
import random
import signal
from collections.abc import AsyncIterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from testbed.agent_text import agent_sentences
from testbed.servers import StartServer, metric_value
from testbed.throttling import running_throttled
from testbed.tiny_aligner import write_tiny_aligner
from testbed.waiting import PATIENCE_S, undisturbed, until
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import WordsMessage
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.synthesizer.workers import WorkerClient
from voiceagent_tts.text.words import split_words

REFERENCE = Path(__file__).parent.parent / "reference"
TEXT = "The quick brown fox jumps over the lazy dog. It was a bright cold day in April. "
WORDLESS: dict[str, Any] = {"without_words": True, "rtf": 0.5}
NEAR_MS = 100

in_shared_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def native() -> AsyncIterator[RunningServer]:
    """A server whose engine reports word times."""
    async with running(Settings(port=0)) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aligned() -> AsyncIterator[RunningServer]:
    """A server whose engine reports no word times, for tests that leave its aligner alive."""
    async with running_throttled(Settings(port=0), WORDLESS) as server:
        yield server


async def open_aligned(wire: Wire, **options) -> ReceivedContext:
    """Open a context whose words come from an aligner."""
    received = await wire.open(**{"language": "en", **options})
    received.is_aligned = True
    return received


async def say_once(wire: Wire, text: str, **options) -> ReceivedContext:
    """Speak a whole text to its end, as fast as a listener plays it."""
    received = await open_aligned(wire, **options)
    return await wire.speak(received, text)


async def say(wire: Wire, text: str, **options) -> ReceivedContext:
    """Speak a whole text to its end; again if disturbed."""
    return await undisturbed(partial(say_once, wire, text, **options))


def starts_ms(received: ReceivedContext) -> np.ndarray:
    """Return the starts of the received words."""
    return np.array([word.start_sample for word in received.words]) / 24


def exact_share(received: ReceivedContext) -> float:
    """Return the share of words marked as exact."""
    return float(np.mean([word.is_exact for word in received.words]))


def aligner_of(server: RunningServer, name: str = "online-0") -> WorkerClient:
    """Return a running aligner."""
    worker = server.state.synthesizer.aligners[name].worker
    assert worker is not None
    return worker


@in_shared_loop
async def test_words_are_as_good_as_the_engines_own(
    native: RunningServer, aligned: RunningServer
) -> None:
    """An engine without word times, at twice real time, gets words like those of its twin."""
    aligners = native.state.synthesizer.aligners.values()
    assert not any(aligner.worker for aligner in aligners), "none is needed"
    async with Wire.connected(native.websocket_url) as wire:
        truth = starts_ms(await wire.say(TEXT, language="en"))
    estimated = metric_value(aligned, "tts_words_total", source="estimate")
    lags = metric_value(aligned, "tts_aligner_lag_seconds_count", aligner="online")
    async with Wire.connected(aligned.websocket_url) as wire:
        received = await say(wire, TEXT)
    assert [word.word for word in received.words] == split_words(TEXT)
    assert np.mean(np.abs(starts_ms(received) - truth) < NEAR_MS) > 0.9
    assert exact_share(received) > 0.8
    assert received.words_late == 0
    times = len(wire.contexts)
    assert metric_value(aligned, "tts_words_total", source="estimate") <= estimated + 2 * times
    assert metric_value(aligned, "tts_aligner_lag_seconds_count", aligner="online") == lags + times
    final = received.done.words_final
    assert final is not None, "the first words left before their times were known"
    assert final.words == [word.text for word in split_words(TEXT)]
    assert all(final.exact)
    assert final.start_ms == sorted(final.start_ms)
    async with Wire.connected(aligned.websocket_url) as wire:
        silent = await say(wire, "Hello there.", timestamps="none")
        assert (silent.words, silent.done.words_final) == ([], None)


@pytest.mark.parametrize(("aligner", "exact"), [("off", 0), ("native", 1)])
async def test_without_an_aligner_words_are_the_engines_or_guesses(
    start_server: StartServer, aligner: str, exact: int
) -> None:
    """`off` estimates all words; `native` uses the engine's words where it reports them."""
    for throttle, share in ((None, exact), ({"without_words": True}, 0)):
        server = await start_server(throttle=throttle, aligner=aligner)
        assert server.state.synthesizer.aligners == {}
        async with Wire.connected(server.websocket_url) as wire:
            received = await say(wire, TEXT)
        assert [word.word for word in received.words] == split_words(TEXT)
        assert exact_share(received) == share
        assert received.words_late == 0
        assert received.done.words_final is None


@in_shared_loop
async def test_flushes_wait_for_their_words(aligned: RunningServer) -> None:
    """A flush is answered after the words before it, and names the end of its audio."""
    async with Wire.connected(aligned.websocket_url) as wire:
        received = await open_aligned(wire)
        for part in ("One two three.", " Four five", " six seven"):
            await wire.text(received, part)
            await wire.flush(received)
        await wire.speak(received)
    events = [event for event in received.events if not isinstance(event, ClientAudio)]
    sent = ""
    for event in events:
        if isinstance(event, WordsMessage):
            sent += " ".join(["", *event.words])
        elif event in received.flushes:
            expected = (" One two three.", " Four five", " six seven")[: event.flush_id]
            assert sent.startswith("".join(expected))
    assert len(received.flushes) == 3
    ends = [flushed.audio_ms for flushed in received.flushes]
    assert 0 < ends[0] < ends[1] < ends[2] <= received.audio_ms


@pytest.mark.parametrize(
    ("sentences", "least_s", "last"),
    [(12, 45, 40), pytest.param(32, 120, 100, marks=[pytest.mark.thorough, pytest.mark.alone])],
)
@in_shared_loop
async def test_a_long_context_keeps_its_words(
    native: RunningServer, sentences: int, least_s: int, last: int
) -> None:
    """A long context gets all its words; the last are as exact as the first."""
    text = " ".join(islice(agent_sentences(seed=4), sentences))
    async with Wire.connected(native.websocket_url) as wire:
        truth = starts_ms(await wire.say(text, language="en", max_lead_s=0))
    throttled = running_throttled(Settings(port=0), {"without_words": True})
    async with throttled as fast, Wire.connected(fast.websocket_url) as wire:
        received = await say(wire, text, max_lead_s=0)
    assert received.audio_ms > least_s * 1000
    assert [word.word for word in received.words] == split_words(text)
    final = received.done.words_final
    assert final is not None
    near = np.abs(np.array(final.start_ms) - truth) < NEAR_MS
    assert near.mean() > 0.95
    assert near[-last:].mean() > 0.9


async def test_a_killed_aligner_costs_exactness_alone(start_server: StartServer) -> None:
    """After kill -9 in mid-utterance audio and words arrive in time; the next context is exact."""

    async def attempt() -> tuple[int, float]:
        server = await start_server(throttle=WORDLESS)
        async with Wire.connected(server.websocket_url) as wire:
            received = await open_aligned(wire)
            await wire.text(received, TEXT)
            await wire.end(received)
            while not any(word.is_exact for word in received.words):
                await wire.receive()
            os.kill(aligner_of(server).pid, signal.SIGKILL)
            known = len(received.words)
            await wire.finish(received)
            assert received.done.reason == "complete"
            assert [word.word for word in received.words] == split_words(TEXT)
            assert sum(word.is_exact for word in received.words) <= known + 3, "what was on its way"
            underrun_s = metric_value(server, "tts_audio_underrun_seconds_sum")
            supervisor = server.state.synthesizer.aligners["online-0"]
            await supervisor.wait_for_worker(PATIENCE_S)
            again = await say(wire, TEXT)
        assert exact_share(again) > 0.8
        assert received.audio_ms == pytest.approx(again.audio_ms, rel=0.01)
        assert metric_value(server, "tts_aligner_restarts") == 1
        return received.words_late, underrun_s

    words_late, underrun_s = await undisturbed(
        attempt, holds=lambda result: result[0] == 0 and result[1] < 0.05
    )
    assert words_late == 0
    assert underrun_s < 0.05


async def test_an_aligner_that_hangs_holds_up_nothing(start_server: StartServer) -> None:
    """While an aligner hangs, audio and words arrive to their end, less exactly."""

    async def attempt() -> ReceivedContext:
        server = await start_server(throttle=WORDLESS)
        pid = aligner_of(server).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            async with Wire.connected(server.websocket_url) as wire:
                return await say_once(wire, TEXT)
        finally:
            os.kill(pid, signal.SIGCONT)

    received = await undisturbed(attempt, holds=lambda received: received.words_late == 0)
    assert received.done.reason == "complete"
    assert [word.word for word in received.words] == split_words(TEXT)
    assert exact_share(received) == 0
    assert received.words_late == 0


async def test_the_whole_chain_under_barge_ins(start_server: StartServer, tmp_path: Path) -> None:
    """Tiny Qwen3-TTS and both aligners, interrupted at any moment.

    No word is late, every context has words, and the spoken text agrees with them.
    """
    server = await start_server(
        engine="qwen3",
        models=(str(REFERENCE / "custom_voice-1b7"),),
        threads=1,
        aligner_model=str(write_tiny_aligner(tmp_path / "tiny")),
        aligner_device="cpu",
    )
    assert list(server.state.synthesizer.aligners) == ["online-0", "forced-0"]
    source = random.Random(5)
    async with Wire.connected(server.websocket_url) as wire:
        whole = await say(wire, "Hi.", voice="vivian", seed=1, max_lead_s=0)
        assert [word.word for word in whole.words] == split_words("Hi.")
        assert metric_value(server, "tts_aligner_lag_seconds_count", aligner="forced") == len(
            wire.contexts
        )

        async def words_late(turn: int) -> int:
            received = await open_aligned(
                wire, voice="vivian", seed=turn, speed=source.choice((1.0, 1.0, 1.5))
            )
            for word in TEXT.split():
                await wire.text(received, f"{word} ")
            await wire.end(received)
            for _ in range(source.randint(1, 40)):
                await wire.receive()
            await wire.until(ClientAudio, received)
            await wire.stop(received)
            assert received.words, "a context without words"
            assert received.cancelled is not None
            assert received.cancelled.text_spoken in (
                "",
                *(received.record.text[: word.word.char_end] for word in received.words),
            )
            return received.words_late

        for turn in range(5):
            assert await undisturbed(partial(words_late, turn), holds=lambda late: late == 0) == 0
    await until(
        lambda: all(s.worker and not s.worker.rows_used for s in _all_workers(server)),
        "every worker has forgotten every context",
    )


def _all_workers(server: RunningServer):
    synthesizer = server.state.synthesizer
    return [*synthesizer.supervisors.values(), *synthesizer.aligners.values()]
