"""Cached phrases in contexts whose text reaches a tiny Qwen3-TTS token by token."""

from pathlib import Path

import httpx
import pytest

from testbed.linked_models import link_with_short_quick_runs
from testbed.servers import StartServer, scrape
from testbed.wire import Wire
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import FlushedMessage

REFERENCE = Path(__file__).parent.parent / "reference"
PHRASE = "Yes."
VOICE = {"voice": "vivian", "language": "en"}


@pytest.mark.thorough
async def test_a_turn_begins_with_a_cached_phrase_and_goes_on_live(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The phrase's samples come first; the model's follow on the same clock, with all words."""
    server = await start_server(
        engine="qwen3",
        models=(link_with_short_quick_runs(REFERENCE / "custom_voice-1b7", tmp_path, frames=24),),
        threads=1,
        rows=2,
        aligner="off",
        watchdog_s=3600.0,
        cache_mb=20,
        watermark=False,
    )
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        assert (await http.post("/v1/cache", json={"text": PHRASE, **VOICE})).json()["stored"] >= 2
        body = {"input": PHRASE, "response_format": "pcm", **VOICE}
        phrase = (await http.post("/v1/audio/speech", json=body)).content
    text = f"{PHRASE} It goes on, one two."
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(max_lead_s=0, **VOICE)
        received.is_aligned = True  # the words of live text are estimates
        for token in (PHRASE, *(f" {word}" for word in text.split()[1:])):
            await wire.text(received, token)
        await wire.flush(received)
        await wire.until(FlushedMessage, received)
        assert received.pcm[: len(phrase)] == phrase
        assert len(received.pcm) > len(phrase)
        await wire.speak(received, f" {PHRASE}")
        assert received.pcm[-len(phrase) // 2 :] != bytes(len(phrase) // 2)
        assert [each.word.text for each in received.words] == f"{text} {PHRASE}".split()
        cut = await wire.open(max_lead_s=0.3, **VOICE)
        cut.is_aligned = True
        await wire.text(cut, text)
        await wire.until(ClientAudio, cut)
        await wire.stop(cut, played_ms=100)
        assert cut.cancelled is not None
        assert cut.cancelled.text_spoken + cut.cancelled.text_remaining == text
    metrics = await scrape(server)
    assert metrics['tts_cache_segments_total{result="hit"}'] >= 4
