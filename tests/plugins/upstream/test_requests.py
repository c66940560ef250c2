"""Requests to an upstream that fails: what the log says, and what the client learns."""

import asyncio

import pytest

from testbed.scripted_upstream import Answer, ScriptedUpstream
from testbed.waiting import until
from voiceagent_tts.errors import EngineError, OverloadedError
from voiceagent_tts.plugins.upstream.requests import Upstream
from voiceagent_tts.plugins.upstream.speech_api import SpeechAPI, SpeechRequest
from voiceagent_tts.plugins.upstream.speech_http import OpenAISpeech

pytestmark = pytest.mark.services

FAULTS = [
    (Answer(401, b"{}"), "refuses the key; set VOICEAGENT_TTS_UPSTREAM_KEY"),
    (Answer(403, b"{}"), "refuses the key"),
    (Answer(404, b"{}"), "the model 'm'"),
    (Answer(422, b"Hello."), "does not accept"),
    (Answer(429, b"{}", {"Retry-After": "7"}), "its limit is reached"),
    (Answer(body=b"<html>", headers={"Content-Type": "text/html"}), "got text/html"),
    (Answer(body=b"RIFFxxxxWAVE"), "got an audio file"),
    (Answer(body=b""), "sent no audio"),
    (Answer(breaks_off=True), "broke off"),
    (Answer(hangs=True), "sent nothing for 0.5 s"),
]


@pytest.mark.parametrize(("answer", "part"), FAULTS, ids=[part for _, part in FAULTS])
async def test_the_log_has_what_a_client_does_not_learn(
    answer: Answer, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstream's address, and what is wrong; neither has the text."""
    scripted = ScriptedUpstream()
    scripted.script.append(answer)
    async with scripted.running() as url:
        service = OpenAISpeech(SpeechAPI(url, "m"), None, timeout_s=0.5, max_requests=1)
        upstream = Upstream(service)
        download = upstream.speak(SpeechRequest("Hello.", "anna"))
        await until(lambda: download.has_arrived, "the request is over")
        await asyncio.to_thread(upstream.close)
    assert upstream.counts.failures == 1
    error = download.error
    assert error is not None and not any(each in error.message for each in (url, "UPSTREAM", "m'"))
    is_busy = answer.status == 429
    assert isinstance(error, OverloadedError if is_busy else EngineError)
    assert error.retry_after_ms == (7000 if is_busy else None)
    (record,) = caplog.records
    assert f"the upstream {url}" in record.message and part in record.message
    assert "Hello" not in record.message
