"""Another server of this software as the upstream: words, cuts, overflow, over real sockets."""

import pytest

from testbed.server_process import ServerProcess
from testbed.servers import StartServer, scrape, worker_of
from testbed.wire import Wire
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.synthesizer.options import ContextOptions

pytestmark = pytest.mark.services

TEXT = "Your table is booked for eight on Friday. We look forward to seeing you all."


async def test_words_and_cuts_come_on_top_of_an_upstream(
    served: ServerProcess, start_server: StartServer
) -> None:
    """The upstream sends audio alone; the listener gets word times, and the history of a cut."""
    server = await start_server(engine="openai", upstream=f"{served.url}/v1", aligner="online")
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(language="en", voice="nova", max_lead_s=0)
        received.is_aligned = True
        await wire.speak(received, TEXT)
        assert [each.word.text for each in received.words] == TEXT.split()
        assert received.record.done is not None
        assert received.record.done.reason == "complete"
        cut = await wire.open(language="en", voice="nova", max_lead_s=0.5)
        cut.is_aligned = True
        await wire.text(cut, TEXT)
        await wire.until(ClientAudio, cut)
        await wire.stop(cut, played_ms=400)
        assert cut.cancelled is not None
        assert cut.cancelled.text_spoken.startswith("Your")
        assert cut.cancelled.text_spoken + cut.cancelled.text_remaining == TEXT
    metrics = await scrape(server)
    assert metrics['tts_worker_upstream_requests_total{worker="openai"}'] >= 0


async def test_sentences_are_as_far_apart_as_without_an_upstream(
    served: ServerProcess, start_server: StartServer
) -> None:
    """Each sentence is a request there, which ends it without a pause."""
    server = await start_server(engine="openai", upstream=f"{served.url}/v1", aligner="off")
    lengths_s = list[float]()
    for url in (served.websocket_url, server.websocket_url):
        async with Wire.connected(url) as wire:
            received = await wire.open(language="en", voice="nova", max_lead_s=0)
            received.is_aligned = url == server.websocket_url
            await wire.speak(received, "Thank you for calling. Your order is ready. Anything else?")
            assert received.record.done is not None
            lengths_s.append(received.record.done.audio_ms / 1000)
    direct_s, through_s = lengths_s
    assert direct_s - 0.25 < through_s < direct_s + 0.4


async def test_contexts_beyond_capacity_go_upstream(
    served: ServerProcess, start_server: StartServer
) -> None:
    """The engine's last row is in use; the next context is spoken by the other server."""
    server = await start_server(
        engine="espeak",
        upstream=f"{served.url}/v1",
        overflow=True,
        upstream_chars_per_day=1000,
        upstream_voices=("nova",),
        aligner="online",
    )
    synthesizer = server.state.synthesizer
    worker = worker_of(synthesizer)
    assert "overflow" not in synthesizer.supervisors
    rows = [worker.attach(lambda event: None) for _ in range(worker.capabilities.max_rows)]
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(language="en", max_lead_s=0)
        received.is_aligned = True
        await wire.speak(received, TEXT)
        assert [each.word.text for each in received.words] == TEXT.split()
    overflow = synthesizer.workers["overflow"].worker
    assert overflow is not None
    assert overflow.rows_used == 0
    for row in rows:
        worker.detach(row, needs_cancel=False)
    context = await synthesizer.open(ContextOptions(language="en"))
    assert context.voice.worker == "espeak"
    context.abandon()


async def test_an_overflow_that_cannot_be_reached_leaves_the_server_as_it_is(
    start_server: StartServer, free_port: int
) -> None:
    """It starts, speaks, and refuses what it has no row for."""
    server = await start_server(
        engine="espeak",
        upstream=f"http://127.0.0.1:{free_port}/v1",
        overflow=True,
        upstream_chars_per_day=1000,
    )
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say("Hello there.", language="en")
        assert [each.word.text for each in received.words] == ["Hello", "there."]
