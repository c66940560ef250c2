"""The Pipecat bot: called over WebRTC, and interrupted by a voice and by other sounds."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pipecat.frames.frames import Frame, LLMContextFrame, LLMRunFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.tests.utils import run_test

from agents import pipecat_stand_ins, pipecat_voice, stand_ins
from testbed import user_sounds
from testbed.listening import words_of
from testbed.openai_server import openai_server, stream_reply
from testbed.server_process import ServerProcess
from testbed.waiting import PATIENCE_S, undisturbed, until
from testbed.webrtc_caller import calling_bot
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.demo.pipeline import running
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport, Utterance

ROOT = Path(__file__).parents[2]
REPLY = "This is a rather long reply that the user is going to interrupt before it has ended"


@dataclass
class LanguageModel:
    """A running language model with one reply.

    Attributes:
        url: address of its API.
        requests: the messages of each request.
    """

    url: str
    requests: list[list[dict[str, Any]]]


@pytest.fixture
async def language_model() -> AsyncIterator[LanguageModel]:
    """A language model that says `REPLY`, word by word."""
    requests: list[list[dict[str, Any]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append((await request.json())["messages"])
        return await stream_reply(request, *(f"{word} " for word in REPLY.split(" ")))

    async with openai_server(chat_completions=answer) as url:
        yield LanguageModel(url, requests)


@contextlib.asynccontextmanager
async def running_bot(port: int, **environment: str) -> AsyncIterator[str]:
    """Run the bot's program; yields its address."""
    url = f"http://127.0.0.1:{port}"
    bot = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agents.pipecat_voice", "-t", "webrtc", "--host", "127.0.0.1",
        "--port", str(port), cwd=ROOT, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with http.get(f"{url}/client/") as page:
                        assert page.status == 200
                        assert "Pipecat" in await page.text()
                        break
                await asyncio.sleep(0.1)
        yield url
    finally:
        bot.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await bot.wait()


def replies(context: LLMContext) -> list[str]:
    """The agent's messages in the history."""
    messages = [message for message in context.get_messages() if isinstance(message, dict)]
    return [str(each["content"]) for each in messages if each["role"] == "assistant"]


@pytest.mark.parametrize("heard_words", [0, 3])
async def test_the_stand_in_continues_behind_the_last_heard_word(
    monkeypatch: pytest.MonkeyPatch, heard_words: int
) -> None:
    """Where a sound was not recognized, Pipecat adds a message of the developer, not of the user.

    Of a reply that nobody heard, the history has nothing, and the whole of it is written again.
    """
    monkeypatch.setattr(stand_ins, "TOKENS_PER_S", 10_000.0)
    line = stand_ins.LINES[0]
    heard = " ".join(line.split()[:heard_words])
    context = LLMContext()
    llm = pipecat_stand_ins.ScriptedLLM()

    async def answer(frames: list[Frame]) -> str:
        written, _ = await run_test(llm, frames_to_send=frames)
        return "".join(frame.text for frame in written if isinstance(frame, LLMTextFrame))

    resumed = LLMContext([{"role": "developer", "content": pipecat_voice.RESUME_PROMPT}])
    if heard:
        resumed.set_messages([{"role": "assistant", "content": heard}, *resumed.get_messages()])
    both = await answer([LLMContextFrame(context), LLMContextFrame(resumed)])
    assert both == line + line[len(heard) :].lstrip()


async def test_a_caller_interrupts_the_bot_and_the_history_has_what_was_heard(
    served: ServerProcess, language_model: LanguageModel, free_port: int
) -> None:
    """The bot falls silent, and the language model is told what the caller heard, and no more."""
    question = await user_sounds.speech(served.websocket_url, "What can you tell me about it?")
    words = await words_of(served.websocket_url, REPLY)
    environment = {"VOICEAGENT_TTS_URL": served.websocket_url, "LOCAL_LLM_URL": language_model.url}

    async def interrupt() -> int:
        """Interrupt the reply to a call; returns the number of words that were heard."""
        language_model.requests.clear()
        async with calling_bot(url) as caller:
            began_at = await caller.wait_until_audible(0.0)
            await caller.until(lambda: caller.blocks[-1][0] > began_at + 1.5)
            caller.microphone.say(question)
            requests = language_model.requests
            await until(lambda: len(requests) == 2, "the request after the interruption")
            spoke_at = caller.microphone.spoke_at_s
            heard_s = caller.silent_from(began_at, spoke_at + 1.0) - began_at
        return sum(word.start_sample < heard_s * SAMPLE_RATE_HZ for word in words)

    async with running_bot(free_port, **environment) as url:
        heard = await undisturbed(interrupt)
    *_, reply, user = language_model.requests[1]
    assert reply["role"] == "assistant" and REPLY.startswith(reply["content"])
    assert user["role"] == "user" and "the user spoke" in user["content"]
    assert abs(len(reply["content"].split()) - heard) <= 1
    assert heard < len(words)


@pytest.mark.parametrize("kind", ["mhm", "cough"])
async def test_after_a_sound_without_words_the_reply_is_heard_to_its_end(
    served: ServerProcess, kind: str
) -> None:
    """It continues at the first unheard word; joined, the parts in the history are the reply."""
    url = served.websocket_url
    sound = user_sounds.cough() if kind == "cough" else await user_sounds.hum(url)
    line = stand_ins.LINES[0]

    async def listen() -> tuple[list[str], list[Utterance]]:
        context, transport = LLMContext(), RealtimeFileTransport()
        worker = pipecat_voice.build_worker(transport, served.websocket_url, context)
        async with running(worker):
            await worker.queue_frames([LLMRunFrame()])  # it greets
            await until(lambda: bool(transport.utterances), "the reply")
            context_id = transport.utterances[0].context_id
            await transport.wait_until_played(context_id, SAMPLE_RATE_HZ)
            transport.say(sound)
            await until(lambda: " ".join(replies(context)) == line, "the rest of the reply")
            # Where the machine stood still, the recorded loudspeaker is behind Pipecat's clock.
            last = transport.utterances[-1]
            words = await words_of(served.websocket_url, replies(context)[-1])
            await until(lambda: last.played_samples > words[-1].start_sample, "the last word")
        return replies(context), transport.utterances

    # The bot's voice activity detection is loaded at once.
    parts, utterances = await undisturbed(listen, own_standstills=1)
    # Silero takes only the hum for a voice: the other sounds do not interrupt at all.
    assert len(parts) == (2 if kind == "mhm" else 1)
    for utterance, part in zip(utterances, parts, strict=True):
        words = await words_of(served.websocket_url, part)
        assert utterance.played_samples > words[-1].start_sample
