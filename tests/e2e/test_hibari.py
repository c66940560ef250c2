"""hibari and the embedded voice behind the real server, over the real wire."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import WarningMessage
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.text.words import split_words

TEXT = "Your total is $42.50, due on Jan. 5. Shall I send the receipt?"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    """A server that probes its voice once, at the start."""
    settings = Settings(port=0, engine="hibari", rows=3, watchdog_s=3600.0)
    async with running(settings) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: RunningServer) -> AsyncIterator[TTSClient]:
    """A client of that server; every row is free before and after the test."""
    await until(lambda: rows_used(server) == 0, "the start-up probe has gone")
    async with TTSClient(server.websocket_url) as connected:
        yield connected
    await until(lambda: rows_used(server) == 0, "every row is free")


def rows_used(server: RunningServer) -> int:
    """Rows in use."""
    return server.state.synthesizer.rows_used


async def test_every_word_comes_before_it_is_heard(client: TTSClient) -> None:
    """The words are the client's, also where many are said for one; their times are exact."""
    words: list[WordTimestamp] = []
    samples = 0
    async for event in client.say(TEXT, language="en", max_lead_s=0):
        if isinstance(event, ClientAudio):
            samples += len(event.pcm) // BYTES_PER_SAMPLE
        elif isinstance(event, WordTimestamp):
            assert event.start_sample + ms_to_samples(1) > samples  # the wire has milliseconds
            words.append(event)
    assert [word.word for word in words] == split_words(TEXT)
    assert all(word.is_exact for word in words)
    amount = words[3]
    assert amount.end_sample is not None and words[-1].end_sample is not None
    assert amount.end_sample - amount.start_sample > SAMPLE_RATE_HZ  # six words of speech
    assert words[-1].end_sample <= samples


async def test_an_alias_and_a_file_are_spoken_too(server: RunningServer) -> None:
    """A client of OpenAI's API gets a WAV file from one of OpenAI's voices."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        body = {"input": "Hello there.", "voice": "alloy", "response_format": "wav"}
        response = await http.post("/v1/audio/speech", json=body)
    assert response.status_code == 200 and response.content[:4] == b"RIFF"
    assert len(response.content) > SAMPLE_RATE_HZ


async def test_an_interruption_splits_the_text_and_frees_the_row(
    client: TTSClient, server: RunningServer
) -> None:
    """The cut is verbatim, and the next context needs no other row."""
    context = await client.open(language="en", max_lead_s=0.2)
    async with context:
        await context.send_text(TEXT * 3)
        await context.end()
        async for event in context:
            if isinstance(event, ClientAudio):
                break
        cut = await context.cancel(played_ms=50)
    assert cut.text_spoken + cut.text_remaining == TEXT * 3
    assert cut.text_remaining
    await until(lambda: rows_used(server) == 0, "the row is free")


@pytest.mark.parametrize(
    ("text", "options", "engine"),
    [
        ("Hello there.", {}, "hibari"),
        ("Hello there.", {"language": "en"}, "hibari"),
        ("Guten Tag, wie geht es Ihnen heute?", {"language": "de"}, "espeak"),
        ("Guten Tag, wie geht es Ihnen heute?", {}, "espeak"),
        ("Guten Tag, wie geht es Ihnen heute?", {"voice": "nova"}, "espeak"),
        ("Hello there.", {"voice": "f3"}, "espeak"),
    ],
)
async def test_a_context_is_placed_by_its_voice_and_language(
    client: TTSClient, server: RunningServer, text: str, options: dict[str, str], engine: str
) -> None:
    """Without a language by that of its first text; the words are native in each case."""
    before = spoken_by(server, engine)
    events = [event async for event in client.say(text, max_lead_s=0, **options)]  # type: ignore[arg-type]
    words = [event for event in events if isinstance(event, WordTimestamp)]
    assert [word.word for word in words] == split_words(text)
    assert all(word.is_exact for word in words)
    assert not [event for event in events if isinstance(event, WarningMessage)]
    await until(lambda: spoken_by(server, engine) > before, f"{engine} reports its audio")


def spoken_by(server: RunningServer, engine: str) -> int:
    """Samples that an engine's worker has made."""
    worker = server.state.synthesizer.supervisors[engine].worker
    assert worker is not None
    return worker.stats.audio_samples


async def test_another_language_by_the_voice_that_was_named(client: TTSClient) -> None:
    """Named at `open`, it is refused; detected in the text, it is read, and the client is told."""
    with pytest.raises(InvalidRequestError) as caught:
        _ = [event async for event in client.say("Guten Tag.", voice="heart", language="de")]
    assert caught.value.code is ErrorCode.INVALID_LANGUAGE
    german = "Guten Tag, wie geht es Ihnen heute?"
    for text, voice in ((german, "heart"), (f"Hello there. {german} {german}", "nova")):
        events = [event async for event in client.say(text, voice=voice)]
        warnings = [event.code for event in events if isinstance(event, WarningMessage)]
        assert warnings == ["language_unavailable"], text


async def test_a_killed_worker_is_replaced(server: RunningServer, client: TTSClient) -> None:
    """The next context is spoken by its successor."""
    worker = server.state.synthesizer.supervisors["hibari"].worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker.closed.wait(), 30.0)
    events = [event async for event in client.say("Hello again.", language="en")]
    assert any(isinstance(event, ClientAudio) for event in events)
