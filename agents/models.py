"""Transcription and language model of an agent: OpenAI-compatible servers, or stand-ins.

    LOCAL_STT_URL=http://127.0.0.1:8000/v1   LOCAL_STT_MODEL=Systran/faster-whisper-small
    LOCAL_LLM_URL=http://127.0.0.1:11434/v1  LOCAL_LLM_MODEL=qwen3:4b

A server that asks for a key gets `LOCAL_STT_API_KEY` or `LOCAL_LLM_API_KEY`.
This module knows no host, no devices and no speech synthesis.
"""

import asyncio
import io
import os
import wave
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam

from agents import stand_ins
from agents.speech_detector import MICROPHONE_RATE_HZ
from voiceagent_tts.core import BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the history.

    Attributes:
        role: who said it.
        text: what was said; of an interrupted reply, what was heard.
        is_interrupted: whether the user interrupted it.
    """

    role: Literal["user", "assistant"]
    text: str
    is_interrupted: bool = False


class Transcriber(Protocol):
    """Turns an utterance into text."""

    async def transcribe(self, pcm: bytes, voice_s: float) -> str:
        """The text of an utterance; empty if it has no words.

        Args:
            pcm: PCM16 mono at `MICROPHONE_RATE_HZ`.
            voice_s: length of the voice in it.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class LanguageModel(Protocol):
    """Writes replies."""

    def reply(self, history: Sequence[Message]) -> AsyncIterator[str]:
        """The tokens of the reply that follows `history`."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


@dataclass(frozen=True, slots=True)
class ModelServer:
    """An OpenAI-compatible server, by its environment variables.

    Attributes:
        url: address of its API, ending in `/v1`.
        model: name of the model.
        api_key: its key.
    """

    url: str
    model: str
    api_key: str


def named_server(kind: Literal["STT", "LLM"], *, default_model: str) -> ModelServer | None:
    """The server that the environment names for `kind`; None if it names none."""
    url = os.environ.get(f"LOCAL_{kind}_URL")
    if not url:
        return None
    model = os.environ.get(f"LOCAL_{kind}_MODEL") or default_model
    return ModelServer(url, model, os.environ.get(f"LOCAL_{kind}_API_KEY") or "none")


def choose_transcriber() -> Transcriber:
    """The transcription server that the environment names, or the stand-in."""
    server = named_server("STT", default_model="whisper-1")
    return DurationTranscriber() if server is None else OpenAITranscriber(server)


def choose_language_model() -> LanguageModel:
    """The language model server that the environment names, or the stand-in."""
    server = named_server("LLM", default_model="default")
    return ScriptedLanguageModel() if server is None else OpenAILanguageModel(server)


class DurationTranscriber:
    """Reports that the user spoke and for how long, but not what they said."""

    async def transcribe(self, pcm: bytes, voice_s: float) -> str:
        """The stand-in for a transcript."""
        return stand_ins.transcript_of(voice_s)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


class OpenAITranscriber:
    """Transcribes with an OpenAI-compatible server."""

    def __init__(self, server: ModelServer) -> None:
        self._client = AsyncOpenAI(base_url=server.url, api_key=server.api_key)
        self._model = server.model

    async def transcribe(self, pcm: bytes, voice_s: float) -> str:
        """The server's transcript.

        Raises:
            openai.OpenAIError: the server does not answer, or refuses.
        """
        file = io.BytesIO()
        with wave.open(file, "wb") as wav:
            wav.setparams((1, BYTES_PER_SAMPLE, MICROPHONE_RATE_HZ, 0, "NONE", ""))
            wav.writeframes(pcm)
        answer = await self._client.audio.transcriptions.create(
            model=self._model, file=("speech.wav", file.getvalue())
        )
        text = getattr(answer, "text", None)
        if not isinstance(text, str):  # the package passes on any answer that is no error
            raise OpenAIError("its answer has no text; does the address end in /v1?")
        return text.strip()

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._client.close()


class ScriptedLanguageModel:
    """Replies with the next of its lines, at the pace of a language model."""

    async def reply(self, history: Sequence[Message]) -> AsyncIterator[str]:
        """The tokens of the next line."""
        said = [message for message in history if message.role == "assistant"]
        interrupted = said[-1].text if said and said[-1].is_interrupted else None
        for token in stand_ins.tokens(stand_ins.next_line(len(said), interrupted)):
            yield token
            await asyncio.sleep(1 / stand_ins.TOKENS_PER_S)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


class OpenAILanguageModel:
    """Replies with the language model of an OpenAI-compatible server."""

    def __init__(self, server: ModelServer) -> None:
        self._client = AsyncOpenAI(base_url=server.url, api_key=server.api_key)
        self._model = server.model

    async def reply(self, history: Sequence[Message]) -> AsyncIterator[str]:
        """The server's tokens.

        Raises:
            openai.OpenAIError: the server does not answer, or refuses.
        """
        messages = [{"role": "system", "content": stand_ins.INSTRUCTIONS}]
        messages += [{"role": message.role, "content": message.text} for message in history]
        stream = await self._client.chat.completions.create(
            model=self._model,
            messages=cast("list[ChatCompletionMessageParam]", messages),
            stream=True,
        )
        async with stream:
            async for chunk in stream:
                if chunk.choices and (token := chunk.choices[0].delta.content):
                    yield token

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._client.close()
