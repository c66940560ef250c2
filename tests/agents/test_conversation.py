"""A conversation without a host: turns, interruptions, sounds that are no utterance, failures."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from agents import stand_ins
from agents.conversation import Conversation, State, is_interruption
from agents.models import (
    DurationTranscriber,
    LanguageModel,
    Message,
    ScriptedLanguageModel,
    Transcriber,
    choose_language_model,
    choose_transcriber,
)
from testbed import user_sounds
from testbed.listening import words_of
from testbed.server_process import ServerProcess
from testbed.user_sounds import RATE_HZ
from testbed.waiting import PATIENCE_S
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ

_STEP_S = 0.02
_PASSES_S = 0.002
"""Real time of a step: the server generates ahead, so that the loudspeaker does not run dry."""
_MICROPHONE_BYTES = round(RATE_HZ * _STEP_S) * 2


class TalkingUser:
    """A user with a microphone and a loudspeaker.

    Attributes:
        played: everything that the loudspeaker played, with silence where it played nothing.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.played = bytearray()
        self._conversation = conversation

    async def say(self, pcm: bytes) -> None:
        """Make a sound."""
        for start in range(0, len(pcm), _MICROPHONE_BYTES):
            await self._step(pcm[start : start + _MICROPHONE_BYTES])

    async def wait(self, is_true: Callable[[], bool], what: str) -> None:
        """Be silent until `is_true`; `what` describes it for the failure message."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            await self._step(b"")

    async def _step(self, pcm: bytes) -> None:
        self.played += self._conversation.playback.read(round(SAMPLE_RATE_HZ * _STEP_S), 0.0)
        await self._conversation.hear(pcm.ljust(_MICROPHONE_BYTES, b"\0"))
        await asyncio.sleep(_PASSES_S)


QUESTION = "What can you tell me about your week?"


@contextlib.asynccontextmanager
async def conversing(
    url: str, transcriber: Transcriber | None = None, language_model: LanguageModel | None = None
) -> AsyncIterator[tuple[Conversation, TalkingUser]]:
    """A conversation on the server at `url`, with stand-ins by default."""
    async with TTSClient(url) as client:
        conversation = Conversation(
            client,
            transcriber or DurationTranscriber(),
            language_model or ScriptedLanguageModel(),
            end_silence_s=0.3,
        )
        async with contextlib.aclosing(conversation):
            yield conversation, TalkingUser(conversation)


def said(conversation: Conversation, count: int) -> Callable[[], bool]:
    """Whether the history has `count` messages."""
    return lambda: len(conversation.history) >= count


async def listen(conversation: Conversation, user: TalkingUser, seconds: float) -> None:
    """Be silent until `seconds` of the current reply were played."""
    samples = round(seconds * SAMPLE_RATE_HZ)
    await user.wait(
        lambda: conversation.reply is not None and conversation.playback.played_samples >= samples,
        "the reply is played",
    )


async def test_a_question_is_answered_and_the_latency_is_split(served: ServerProcess) -> None:
    """The history has both messages, and the stages cover the turn."""
    question = await user_sounds.speech(served.websocket_url, QUESTION)
    async with conversing(served.websocket_url) as (conversation, user):
        await user.say(question)
        await user.wait(said(conversation, 2), "the answer")
        await user.wait(lambda: conversation.is_idle, "the end of the answer")
    heard, answer = conversation.history
    assert heard.role == "user" and "the user spoke" in heard.text
    assert answer == Message("assistant", stand_ins.LINES[0])
    (latency,) = conversation.clock.turns
    assert all(seconds >= 0 for seconds in latency.stages.values())


@pytest.mark.parametrize("at_s", [0.4, 1.3])
async def test_the_history_of_an_interrupted_reply_is_what_was_heard(
    served: ServerProcess, at_s: float
) -> None:
    """The history ends with the last word that was audible; the next reply quotes it."""
    question = await user_sounds.speech(served.websocket_url, QUESTION)
    async with conversing(served.websocket_url) as (conversation, user):
        conversation.history.append(Message("assistant", stand_ins.LINES[0]))
        await user.say(question)
        await listen(conversation, user, at_s)
        await user.say(question)
        played = conversation.playback.played_samples
        assert conversation.state is State.PAUSED
        await user.wait(said(conversation, 4), "the cut and the question")
    cut = conversation.history[2]
    words = await words_of(served.websocket_url, stand_ins.LINES[1])
    heard = [word for word in words if word.start_sample < played]
    assert cut == Message(
        "assistant", stand_ins.LINES[1][: heard[-1].word.char_end], is_interrupted=True
    )
    assert conversation.false_interruptions == 0


@pytest.mark.parametrize("kind", ["mhm", "door"])
async def test_a_sound_that_is_no_utterance_does_not_stop_a_reply(
    served: ServerProcess, kind: str
) -> None:
    """The reply continues with the next sample, and the history has all of it."""
    question = await user_sounds.speech(served.websocket_url, QUESTION)
    url = served.websocket_url
    sound = user_sounds.door() if kind == "door" else await user_sounds.hum(url)
    async with conversing(served.websocket_url) as (conversation, user):
        conversation.history.append(Message("assistant", stand_ins.LINES[0]))
        received = record_pushes(conversation)
        await user.say(question)
        await listen(conversation, user, 1.0)
        await user.say(sound)
        await user.wait(said(conversation, 3), "the end of the reply")
    assert conversation.history[2] == Message("assistant", stand_ins.LINES[1])
    assert conversation.false_interruptions == (kind == "mhm")  # Silero takes that for a voice
    assert np.array_equal(_without_silence(user.played), _without_silence(received))


def record_pushes(conversation: Conversation) -> bytearray:
    """All audio of the server from now on."""
    received = bytearray()
    push = conversation.playback.push

    def record(pcm: bytes) -> None:
        received.extend(pcm)
        push(pcm)

    conversation.playback.push = record
    return received


def _without_silence(pcm: bytearray) -> np.ndarray:
    """The samples that are not zero: pauses insert zeros."""
    samples = np.frombuffer(bytes(pcm), "<i2")
    return samples[samples != 0]


async def test_an_utterance_with_a_pause_is_transcribed_as_a_whole(served: ServerProcess) -> None:
    """If the user continues while the first part is transcribed, both parts are one message."""

    class SlowTranscriber(DurationTranscriber):
        """Answers the first call when the user has continued."""

        def __init__(self) -> None:
            self.lengths: list[int] = []

        async def transcribe(self, pcm: bytes, voice_s: float) -> str:
            self.lengths.append(len(pcm))
            if len(self.lengths) == 1:
                await asyncio.Event().wait()
            return "both parts"

    question = await user_sounds.speech(served.websocket_url, QUESTION)
    transcriber = SlowTranscriber()
    async with conversing(served.websocket_url, transcriber) as (conversation, user):
        await user.say(question)
        await user.wait(lambda: len(transcriber.lengths) == 1, "the first part")
        await user.say(question)
        await user.wait(said(conversation, 1), "the message")
    assert conversation.history[0] == Message("user", "both parts")
    first, both = transcriber.lengths
    assert both >= first + len(question)


async def test_local_models_transcribe_and_answer(
    served: ServerProcess, local_models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent uses the servers that the environment names, without an API key."""
    for name in ("STT", "LLM"):
        monkeypatch.setenv(f"LOCAL_{name}_URL", local_models)
        monkeypatch.setenv(f"LOCAL_{name}_MODEL", f"tiny-{name}")
    question = await user_sounds.speech(served.websocket_url, QUESTION)
    models = choose_transcriber(), choose_language_model()
    async with conversing(served.websocket_url, *models) as (conversation, user):
        await user.say(question)
        await user.wait(said(conversation, 2), "the answer")
    texts = [message.text for message in conversation.history]
    assert texts == ["heard by tiny-STT", "said by tiny-LLM"]
    assert conversation.problems == []


@pytest.mark.parametrize(
    ("name", "model", "sentence"),
    [
        ("STT", "broken", "the transcription server failed: Error code: 400"),
        ("STT", "page", "the transcription server failed: its answer has no text"),
        ("LLM", "broken", "the language model's server failed: Error code: 400"),
    ],
)
async def test_a_model_that_fails_leaves_the_agent_listening(
    served: ServerProcess,
    local_models: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    model: str,
    sentence: str,
) -> None:
    """The problem is reported, and the next turn starts as usual."""
    monkeypatch.setenv(f"LOCAL_{name}_URL", local_models)
    monkeypatch.setenv(f"LOCAL_{name}_MODEL", model)
    question = await user_sounds.speech(served.websocket_url, QUESTION)
    models = choose_transcriber(), choose_language_model()
    async with conversing(served.websocket_url, *models) as (conversation, user):
        await user.say(question)
        await user.wait(lambda: bool(conversation.problems), "the problem")
        await user.wait(lambda: conversation.is_idle, "the agent listens")
    assert conversation.problems[0].startswith(sentence)
    assert not any(message.role == "assistant" for message in conversation.history)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("Stop.", True), ("Mm-hmm.", False), ("Uh-huh", False), ("", False), ("No, wait", True)],
)
def test_words_interrupt_and_backchannels_do_not(text: str, is_one: bool) -> None:
    """Spelling and punctuation of a backchannel do not matter."""
    assert is_interruption(text) is is_one
