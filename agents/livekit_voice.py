"""A voice agent for LiveKit that needs no key and no download.

    python -m agents.livekit_voice console    # talk to it: microphone, loudspeaker (libportaudio2)
    python -m agents.livekit_voice start      # join the rooms of the server at LIVEKIT_URL

The voice is a voiceagent-tts server: the one at `VOICEAGENT_TTS_URL`, else the one that answers on
this machine, else one with the embedded voice that lives as long as the conversation. What finds
the user's words begin and end (voice activity, turn detector) is bundled with LiveKit. Ears and
mind are local servers that speak OpenAI's dialect, where the environment names them:

    LOCAL_STT_URL=http://127.0.0.1:8000/v1   LOCAL_STT_MODEL=Systran/faster-whisper-small
    LOCAL_LLM_URL=http://127.0.0.1:11434/v1  LOCAL_LLM_MODEL=qwen3:4b

Without them stand-ins do: `Ears` notices that you speak but not what you say, and `ScriptedLLM` has
its lines. Cut it off, and it tells you the last words that, by its history, you heard.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    Agent,
    AgentServer,
    AgentSession,
    APIConnectOptions,
    JobContext,
    LanguageCode,
    cli,
    inference,
    llm,
    stt,
    utils,
)
from livekit.plugins.openai import LLM as OpenAILLM
from livekit.plugins.openai import STT as OpenAISTT

from agents.own_server import serving
from livekit.plugins import voiceagent

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8765
INSTRUCTIONS = (
    "You are a friendly voice agent. Answer in one or two short sentences without formatting."
)
LINES = (
    "Hello! Say something, and cut me off whenever you like.",
    "Here is a long list, so that you can cut in: Monday, Tuesday, Wednesday, Thursday, Friday, "
    "Saturday, Sunday. One, two, three, four, five, six, seven, eight, nine, ten.",
    "Whatever you hear me say is in my history, and what you did not hear is not. Try it: January, "
    "February, March, April, May, June, July, August, September, October, November, December.",
)
QUOTED_WORDS = 4
TOKENS_PER_S = 50.0
_TOKEN = re.compile(r"\s?\S{1,4}|\s")

server = AgentServer(host="127.0.0.1")


@server.rtc_session()
async def converse(ctx: JobContext) -> None:
    """One conversation: at the console, or in a room that LiveKit sends this agent to."""
    stack = contextlib.AsyncExitStack()
    ctx.add_shutdown_callback(stack.aclose)
    url = await stack.enter_async_context(voice_server())
    session = AgentSession[None](
        vad=inference.VAD(model="silero"),
        stt=ears(),
        llm=mind(),
        tts=voiceagent.TTS(url=url, api_key=os.environ.get("VOICEAGENT_TTS_API_KEY")),
        turn_handling={"turn_detection": inference.TurnDetector(version="v1-mini")},
        use_tts_aligned_transcript=True,
        tts_text_transforms=None,
    )
    await session.start(Greeter(instructions=INSTRUCTIONS), room=ctx.room)


class Greeter(Agent):
    """Speaks first."""

    async def on_enter(self) -> None:
        """Greet whoever has come."""
        self.session.generate_reply(instructions="Greet the user.")


@contextlib.asynccontextmanager
async def voice_server() -> AsyncIterator[str]:
    """URL of the server that speaks; one of our own where none is named and none answers."""
    if url := os.environ.get("VOICEAGENT_TTS_URL"):
        yield url
    elif await answers(DEFAULT_HOST, DEFAULT_PORT):
        yield f"ws://{DEFAULT_HOST}:{DEFAULT_PORT}"
    else:
        async with serving(Path("out/livekit_voice-server.log")) as url:
            yield url


async def answers(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def ears() -> stt.STT:
    """The local transcriber that the environment names, or its stand-in."""
    if url := os.environ.get("LOCAL_STT_URL"):
        model = os.environ.get("LOCAL_STT_MODEL") or "whisper-1"
        return OpenAISTT(model=model, base_url=url, api_key="none", detect_language=True)
    return Ears()


def mind() -> llm.LLM:
    """The local language model that the environment names, or its stand-in."""
    if url := os.environ.get("LOCAL_LLM_URL"):
        model = os.environ.get("LOCAL_LLM_MODEL") or "default"
        return OpenAILLM(model=model, base_url=url, api_key="none")
    return ScriptedLLM()


class Ears(stt.STT):
    """Hears that somebody speaks and for how long, not what."""

    def __init__(self) -> None:
        capabilities = stt.STTCapabilities(streaming=False, interim_results=False)
        super().__init__(capabilities=capabilities)

    async def _recognize_impl(self, buffer: utils.AudioBuffer, **options: Any) -> stt.SpeechEvent:
        seconds = utils.audio.calculate_audio_duration(buffer)
        text = f"(somebody speaks for {seconds:.1f} s)"
        heard = stt.SpeechData(language=LanguageCode("en"), text=text)
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[heard])


class ScriptedLLM(llm.LLM):
    """Says its lines in turn, at the pace of a language model."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: Any,
    ) -> llm.LLMStream:
        """The next line."""
        return _Line(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class _Line(llm.LLMStream):
    async def _run(self) -> None:
        for token in _TOKEN.findall(next_line(self._chat_ctx)):
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id="line", delta=delta))
            await asyncio.sleep(1 / TOKENS_PER_S)


def next_line(history: llm.ChatContext) -> str:
    """What comes after `history`: first, where the last line was cut off, what was heard of it."""
    said = [message for message in history.messages() if message.role == "assistant"]
    line = LINES[len(said) % len(LINES)]
    if not said or not said[-1].interrupted:
        return line
    heard = (said[-1].text_content or "").split()[-QUOTED_WORDS:]
    return f"The last words that you heard were: {' '.join(heard).rstrip('.,:')}. {line}"


def main() -> None:
    """Run LiveKit's own command line; a console without a sound library is told what to install."""
    try:
        cli.run_app(server)
    except OSError as error:
        if "PortAudio" not in str(error):
            raise
        raise SystemExit(f"{error}: `apt-get install libportaudio2` brings it") from error


if __name__ == "__main__":
    main()
