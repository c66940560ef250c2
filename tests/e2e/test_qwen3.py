"""Tiny Qwen3-TTS models behind the real server, over the real wire.

Their weights are random, so they speak noise up to a limit; credit and cancel limit them, too.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import httpx
import numpy as np
import pytest
import pytest_asyncio
import torch

from testbed.linked_models import link_with_short_quick_runs
from testbed.papers import table_rows
from testbed.servers import scrape, worker_of
from testbed.waiting import undisturbed, until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import WarningMessage
from voiceagent_tts.server.serve import RunningServer, running

REFERENCE = Path(__file__).parent.parent / "reference"
SPEAKERS = REFERENCE / "custom_voice-1b7"
BASE = str(REFERENCE / "base-0b6")
SENTENCE = "Hello there, this is a sentence that is being written. "


in_shared_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen3(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of two models with a thread each, without aligners, which take long to load.

    The one with speakers ends every sequence after 3.2 s. The server probes once, at the start: a
    later probe would take one of the rows that tests count.
    """
    speakers = link_with_short_quick_runs(SPEAKERS, tmp_path_factory.mktemp("speakers"), frames=40)
    settings = Settings(
        port=0,
        engine="qwen3",
        models=(speakers, str(REFERENCE / "voice_design-1b7")),
        threads=1,
        rows=3,
        aligner="off",
        watchdog_s=3600.0,
    )
    async with running(settings) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client(qwen3: RunningServer) -> AsyncIterator[TTSClient]:
    """A client of that server; all rows are free before and after the test."""
    await until(lambda: all_free(qwen3), "the start-up probe has gone")
    async with TTSClient(qwen3.websocket_url) as connected:
        yield connected
    await until(lambda: all_free(qwen3), "every row is free")


def all_free(server: RunningServer) -> bool:
    """Return whether all workers run and none of their rows is in use."""
    workers = [supervisor.worker for supervisor in server.state.synthesizer.supervisors.values()]
    return all(worker is not None and not worker.rows_used for worker in workers)


@in_shared_loop
async def test_first_audio_comes_before_the_sentence_is_written(client: TTSClient) -> None:
    """The first word and then audio arrive while tokens are still being sent."""
    async with await client.open(voice="vivian", seed=1) as context:
        first_kinds = list[type]()

        async def listen() -> None:
            async for event in context:
                first_kinds.append(type(event))
                if isinstance(event, ClientAudio):
                    return

        listening = asyncio.create_task(listen())
        for word in SENTENCE.split()[:4]:
            await context.send_text(f"{word} ")
        await listening  # the sentence has no end yet
        assert first_kinds[0] is WordTimestamp


@pytest.mark.realtime
@in_shared_loop
async def test_every_word_comes_once_ahead_of_its_sound(client: TTSClient) -> None:
    """Words are estimates, in order, verbatim, and each precedes its audio."""

    async def latest_samples() -> int:
        latest = -SAMPLE_RATE_HZ
        async with await client.open(voice="vivian", seed=1, max_lead_s=1.0) as context:
            await context.send_text(SENTENCE)
            await context.end()
            clock = PlayoutClock()
            words = list[WordTimestamp]()
            async for event in context:
                if isinstance(event, ClientAudio):
                    clock.send(len(event.pcm) // 2, time.monotonic())
                    if clock.sent_samples > 2 * SAMPLE_RATE_HZ:
                        break
                elif isinstance(event, WordTimestamp):
                    played = clock.played_samples(time.monotonic())
                    latest = max(latest, played - event.start_sample)
                    assert not event.is_exact
                    words.append(event)
            assert [word.word.text for word in words] == SENTENCE.split()[: len(words)]
            assert len(words) >= 3
            cut = await context.cancel(played_ms=1000)
        heard = sum(word.start_sample < SAMPLE_RATE_HZ for word in words)
        assert cut.text_spoken.split() == SENTENCE.split()[:heard]
        assert cut.text_spoken + cut.text_remaining == SENTENCE
        return latest

    assert await undisturbed(latest_samples) <= SAMPLE_RATE_HZ // 4


@in_shared_loop
async def test_each_voice_is_spoken_by_its_model(client: TTSClient) -> None:
    """Speakers of one model and the designed voice of the other share a socket."""
    async with (
        await client.open(voice="vivian", seed=1) as preset,
        await client.open(voice="designed", instruct="a calm pilot", seed=1) as designed,
    ):
        for context in (preset, designed):
            await context.send_text(SENTENCE)
        for context in (preset, designed):
            async for event in context:
                if isinstance(event, ClientAudio):
                    break


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cloned(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of a Base model, for tests that keep no clone."""
    settings = Settings(
        port=0,
        engine="qwen3",
        models=(BASE,),
        threads=1,
        aligner="off",
        voices_folder=tmp_path_factory.mktemp("voices"),
    )
    async with running(settings) as server:
        yield server


@in_shared_loop
async def test_a_server_without_voices_says_how_to_get_one(cloned: RunningServer) -> None:
    """A Base model without clones answers with the command that adds one."""
    async with TTSClient(cloned.websocket_url) as client:
        context = await client.open()
        with pytest.raises(InvalidRequestError, match="voices add"):
            await context.send_text(SENTENCE)
            async for _ in context:
                pass
    async with httpx.AsyncClient(base_url=cloned.url) as http:
        assert (await http.get("/health/ready")).status_code == 503


@in_shared_loop
async def test_how_often_a_clone_was_at_hand_is_counted(cloned: RunningServer) -> None:
    """A clone is read once and then found in memory; `/metrics` counts both per worker."""
    clones = cloned.state.clones
    write_file(clones.file("anna"), Cloned(torch.zeros(64)).to_bytes())
    async with TTSClient(cloned.websocket_url) as client:
        for _ in range(2):
            async with await client.open(voice="anna", seed=1) as context:
                await context.send_text(SENTENCE)
                await anext(aiter(context))
    delete_file(clones.file("anna"))
    worker = worker_of(cloned, BASE)
    await until(lambda: worker.stats.metrics["clone_cache_hits_total"] > 0, "a heartbeat tells")
    metrics = await scrape(cloned)
    assert metrics[f'tts_worker_clone_cache_hits_total{{worker="{BASE}"}}'] > 0
    assert metrics[f'tts_worker_clone_cache_misses_total{{worker="{BASE}"}}'] == 1
    documented = {name for name, _, _ in table_rows("docs/monitoring.md", "metric of qwen3")}
    assert documented == {f"tts_worker_{name}" for name in worker.stats.metrics}


@in_shared_loop
async def test_a_token_fed_voice_is_said_right(client: TTSClient) -> None:
    """Words are the client's, and a break is silence to the sample where the next word begins.

    The first of its samples may hold the end of the watermark's filter, 256 samples at most.
    """
    lexicon = {"nginx": "engine x", "New York": {"ipa": "nuː jɔːk"}}
    text = 'Use nginx. <break time="700ms"/> New York, <spell>A7</spell>.'
    async with await client.open(
        voice="vivian", seed=1, lexicon=lexicon, markup=True, max_lead_s=0
    ) as context:
        for start in range(0, len(text), 3):
            await context.send_text(text[start : start + 3])
        await context.end()
        pcm, words, codes = b"", list[WordTimestamp](), list[str]()
        async for event in context:
            match event:
                case ClientAudio():
                    pcm += event.pcm
                case WordTimestamp():
                    words.append(event)
                case WarningMessage():
                    codes.append(event.code)
                case _:
                    pass
    assert [each.word.text for each in words] == [
        "Use",
        "nginx.",
        "New York,",
        "<spell>A7</spell>.",
    ]
    assert codes == ["ipa_ignored"]
    samples = np.frombuffer(pcm, "<i2")
    audible = np.flatnonzero(samples)
    longest = int(np.diff(audible).argmax())
    silent_samples = audible[longest + 1] - audible[longest] - 1
    assert 0 <= ms_to_samples(700) - silent_samples <= 256
    end = audible[longest + 1]
    assert [each.start_sample >= end - 1 for each in words] == [False, False, True, True]


@in_shared_loop
@pytest.mark.parametrize("feeding", ["token", "segment"])
@pytest.mark.parametrize(
    "text",
    [
        "Goedemiddag, hoe kan ik u vandaag helpen met uw vraag?",
        "你哋喺邊度呀？我唔知佢嚟咗未。",
        "مرحبا، كيف حالك اليوم يا صديقي؟",
    ],
    ids=["nl", "yue", "ar"],
)
async def test_a_language_that_the_model_lacks_is_a_warning(
    client: TTSClient, feeding: Literal["token", "segment"], text: str
) -> None:
    """The model chooses how to read it, in both feedings; on request the context fails."""
    codes = [
        event.code
        async for event in client.say(text, text_feeding=feeding, max_lead_s=0)
        if isinstance(event, WarningMessage)
    ]
    assert codes == ["language_unavailable"]
    with pytest.raises(InvalidRequestError) as refused:
        async for _ in client.say(text, text_feeding=feeding, strict_language=True):
            pass
    assert refused.value.code == ErrorCode.LANGUAGE_UNAVAILABLE
