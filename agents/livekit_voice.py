"""A voice agent for LiveKit that needs no API key and no model download.

    lk agent console agents/livekit_voice.py       # talk to it; `lk` is LiveKit's command line
    python -m agents.livekit_voice console         # the same in Python, which LiveKit will remove
    python -m agents.livekit_voice console --text  # type to it: no sound devices
    python -m agents.livekit_voice start           # join the rooms of the server at LIVEKIT_URL

The console in Python needs the PortAudio library (`apt-get install libportaudio2`).

The voice comes from a voiceagent-tts server: the one at `VOICEAGENT_TTS_URL`, or else the one on
this machine's default port, or else one with the embedded voice that this program starts. Voice
activity detection and turn detection use the models that LiveKit bundles. Transcription and the
language model are optional local servers with an OpenAI-compatible API:

    LOCAL_STT_URL=http://127.0.0.1:8000/v1   LOCAL_STT_MODEL=Systran/faster-whisper-small
    LOCAL_LLM_URL=http://127.0.0.1:11434/v1  LOCAL_LLM_MODEL=qwen3:4b

They need LiveKit's plugin for that API, which the extra `agents` has. Without them, stand-ins take
their place: `DurationSTT` notices that you speak but not what you say, and `ScriptedLLM` speaks
fixed lines. Interrupt the agent, and it repeats the last words that you heard, according to its
history.
"""

import asyncio
import contextlib
import os
import sys
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

from agents import stand_ins
from agents.sound_card import SoundError, check_devices, load_portaudio
from agents.voice_server import voice_server
from livekit.plugins import voiceagent
from voiceagent_tts.extras import install_hint

try:  # here: LiveKit's plugins must be imported before a job starts
    from livekit.plugins import openai
except ImportError:
    openai = None

SERVER_LOG = Path("out/livekit_voice-server.log")

server = AgentServer(host="127.0.0.1")


@server.rtc_session()
async def converse(ctx: JobContext) -> None:
    """Run one conversation, at the console or in a room that LiveKit assigns to this agent."""
    stack = contextlib.AsyncExitStack()
    ctx.add_shutdown_callback(stack.aclose)
    url = await stack.enter_async_context(voice_server(SERVER_LOG))
    session = AgentSession[None](
        vad=inference.VAD(model="silero"),
        stt=choose_stt(),
        llm=choose_llm(),
        tts=voiceagent.TTS(url=url),
        turn_handling={"turn_detection": inference.TurnDetector(version="v1-mini")},
        use_tts_aligned_transcript=True,  # otherwise LiveKit's transcript ignores the word times
        tts_text_transforms=None,  # the server does not speak markdown, and the history keeps it
    )
    await session.start(Greeter(instructions=stand_ins.INSTRUCTIONS), room=ctx.room)


class Greeter(Agent):
    """An agent that speaks first."""

    async def on_enter(self) -> None:
        """Greet the user."""
        self.session.generate_reply(instructions="Greet the user.")


def choose_stt() -> stt.STT:
    """The transcription server that the environment names, or the stand-in."""
    if url := local_server("STT"):
        assert openai is not None, "local_server refuses a URL without the plugin"
        model = os.environ.get("LOCAL_STT_MODEL") or "whisper-1"
        return openai.STT(model=model, base_url=url, api_key="none", detect_language=True)
    return DurationSTT()


def choose_llm() -> llm.LLM:
    """The language model server that the environment names, or the stand-in."""
    if url := local_server("LLM"):
        assert openai is not None, "local_server refuses a URL without the plugin"
        model = os.environ.get("LOCAL_LLM_MODEL") or "default"
        return openai.LLM(model=model, base_url=url, api_key="none")
    return ScriptedLLM()


def local_server(kind: str) -> str | None:
    """The URL of the server for `STT` or `LLM` that the environment names.

    Raises:
        SystemExit: there is one, and LiveKit's plugin for it is missing.
    """
    url = os.environ.get(f"LOCAL_{kind}_URL")
    if url and openai is None:
        hint = install_hint("agents")
        raise SystemExit(f"LOCAL_{kind}_URL needs LiveKit's plugin for OpenAI's API: {hint}")
    return url


class DurationSTT(stt.STT):
    """Reports that the user spoke and for how long, but not what they said."""

    def __init__(self) -> None:
        capabilities = stt.STTCapabilities(streaming=False, interim_results=False)
        super().__init__(capabilities=capabilities)

    async def _recognize_impl(self, buffer: utils.AudioBuffer, **options: Any) -> stt.SpeechEvent:
        text = stand_ins.transcript_of(utils.audio.calculate_audio_duration(buffer))
        speech = stt.SpeechData(language=LanguageCode("en"), text=text)
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[speech])


class ScriptedLLM(llm.LLM):
    """Answers with the next of its lines, at the pace of a language model."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: Any,
    ) -> llm.LLMStream:
        """Start to write the next line."""
        return _Line(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class _Line(llm.LLMStream):
    async def _run(self) -> None:
        for token in stand_ins.tokens(next_line(self._chat_ctx)):
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id="line", delta=delta))
            await asyncio.sleep(1 / stand_ins.TOKENS_PER_S)


def next_line(history: llm.ChatContext) -> str:
    """The stand-in's line that follows `history`."""
    said = [message for message in history.messages() if message.role == "assistant"]
    is_interrupted = bool(said) and said[-1].interrupted
    return stand_ins.next_line(len(said), said[-1].text_content or "" if is_interrupted else None)


def check_console(options: list[str]) -> None:
    """Check what LiveKit's console needs: without it, the console ends silently, with status 0.

    Raises:
        SystemExit: there is no terminal, no PortAudio, which a console for text loads too, or,
            unless it is for text, no sound device.
    """
    if {"--help", "--list-devices"} & set(options):
        return
    try:
        load_portaudio()
    except SoundError as error:
        raise SystemExit(str(error)) from error
    if "--text" not in options:
        try:
            check_devices()
        except SoundError as error:
            raise SystemExit(f"{error}; without devices: console --text") from error
    if not sys.stdin.isatty():
        raise SystemExit("the console needs a terminal, and standard input is none")


def main() -> None:
    """Run LiveKit's command line.

    Raises:
        SystemExit: the console cannot work here.
    """
    if sys.argv[1:2] == ["console"]:
        check_console(sys.argv[2:])
    cli.run_app(server)


if __name__ == "__main__":
    main()
