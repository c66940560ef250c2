"""A model that loses its text: the words in its noise were not heard, whoever asks.

Tiny random weights make noise and find no end.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from testbed.linked_models import link_with_few_codebooks
from testbed.parity_reference import REFERENCE
from testbed.servers import StartServer
from voiceagent_tts.client import ClientAudio, TTSClient, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.server.serve import RunningServer

LOST = "OK"
"""A text that is lost with `LOSING`."""
LOSING: dict[str, Any] = {"voice": "vivian", "language": "en", "seed": 1, "speed": 4.0}
"""Options of a context that loses it after five seconds of noise, which speed makes 1.4 s."""


async def test_words_that_were_noise_were_not_heard(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The error takes back the word that was sent, and both cuts say that nothing was heard.

    The log has the code and no words.
    """
    link_with_few_codebooks(REFERENCE / "custom_voice-1b7", tmp_path / "losing")
    models = (str(tmp_path / "losing"),)
    server = await start_server(engine="qwen3", models=models, rows=2, threads=1)
    events: list[object] = []
    with capture_logs() as lines:
        await _lose(server, events)
    logged = [line for line in lines if line.get("code") == ErrorCode.TEXT_LOST]
    assert logged and not any(LOST in str(line) for line in lines)
    body = {"input": LOST, "stream_format": "ndjson", "response_format": "pcm", **LOSING}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        answer = await http.post("/v1/audio/speech", json=body)
    *_, last = map(json.loads, answer.text.splitlines())
    assert (last["error"]["code"], last["error"]["spoken_chars"]) == (ErrorCode.TEXT_LOST, 0)


async def _lose(server: RunningServer, events: list[object]) -> None:
    """Speak a text that the model loses; what the client receives is added to `events`."""
    async with TTSClient(server.websocket_url) as client, await client.open(**LOSING) as context:
        await context.send_text(LOST)
        await context.end()
        with pytest.raises(EngineError) as failed:
            async for event in context:
                events.append(event)
        assert (failed.value.code, failed.value.spoken_chars) == (ErrorCode.TEXT_LOST, 0)
        assert failed.value.is_retryable
        words = [event.word.text for event in events if isinstance(event, WordTimestamp)]
        assert words == [LOST]
        assert any(isinstance(event, ClientAudio) for event in events)
        for cut in (await context.cut(5000), context.cut_locally(5000)):
            assert (cut.text_spoken, cut.text_remaining) == ("", LOST)
