"""Talk to a voice agent through this machine's microphone and loudspeaker; no host, no key.

    python -m agents.local_mic                              # with headphones
    python -m agents.local_mic --loudspeaker                # with echo cancellation
    python -m agents.local_mic --wav in.wav --out out.wav   # without devices

The devices need the PortAudio library (`apt-get install libportaudio2`). The voice comes from the
server at `VOICEAGENT_TTS_URL`, or else the one on this machine's default port, or else one with the
embedded voice that this program starts. `agents.models` lists the variables that name servers for
transcription and for the language model. Without them, stand-ins notice that you speak but not what
you say, and speak fixed lines.

At the end, the program prints how long the agent took to answer, by stage: end of speech → voice
activity detection → transcription → first token → first audible sample. The last line is one JSON
object.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from loguru import logger
from rich.console import Console

from agents.conversation import Conversation
from agents.models import choose_language_model, choose_transcriber
from agents.sound_card import SoundCard, SoundError, list_devices
from agents.sound_files import SoundFiles
from agents.talk_view import TalkView, latency_table
from agents.voice_server import voice_server
from voiceagent_tts.client import TTSClient
from voiceagent_tts.errors import VoiceAgentError

END_SILENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class Devices:
    """Where the audio comes from and goes to.

    Attributes:
        wav: file in place of the microphone; None for devices.
        out: file in place of the loudspeaker.
        microphone: name or number of the input device.
        loudspeaker: name or number of the output device.
        cancels_echo: whether the loudspeaker's sound is removed from the microphone's.
    """

    wav: Path | None = None
    out: Path | None = None
    microphone: str | None = None
    loudspeaker: str | None = None
    cancels_echo: bool = False


def main(
    wav: Annotated[
        Path | None, typer.Option(help="Play this file to the agent, without devices.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="With --wav: write the conversation here, the agent on the left.")
    ] = Path("out/local_mic.wav"),
    microphone: Annotated[
        str | None, typer.Option("--input", help="Name or number of the microphone.")
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="Name or number of the loudspeaker or headphones.")
    ] = None,
    loudspeaker: Annotated[
        bool, typer.Option("--loudspeaker", help="Cancel the echo of a loudspeaker.")
    ] = False,
    voice: Annotated[str | None, typer.Option(help="Voice of the agent.")] = None,
    end_silence: Annotated[
        float, typer.Option(min=0.1, help="Seconds of silence that end your turn.")
    ] = END_SILENCE_S,
    shows_devices: Annotated[
        bool, typer.Option("--list-devices", help="List the sound devices, and exit.")
    ] = False,
) -> None:
    """Talk to a voice agent, and interrupt it: its history keeps what you heard."""
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    devices = Devices(wav, out, microphone, output, loudspeaker)
    try:
        if shows_devices:
            print(list_devices())
            return
        asyncio.run(talk(devices, voice, end_silence))
    except SoundError as error:
        raise SystemExit(f"{error}; without devices: --wav in.wav --out out.wav") from error
    except OSError as error:
        raise SystemExit(str(error) or "no answer in time from the voice server") from error
    except VoiceAgentError as error:
        raise SystemExit(error.message) from error


async def talk(devices: Devices, voice: str | None, end_silence_s: float) -> None:
    """Hold one conversation, until the file or the user (Ctrl-C) ends it; print its latency.

    Raises:
        SoundError: a device is missing, or was unplugged.
        OSError: a file cannot be read or written.
        VoiceAgentError: the voice server cannot be reached.
    """
    console = Console()
    async with (
        voice_server(Path("out/local_mic-server.log")) as url,
        TTSClient(url, os.environ.get("VOICEAGENT_TTS_API_KEY")) as client,
    ):
        conversation = Conversation(
            client,
            choose_transcriber(),
            choose_language_model(),
            end_silence_s=end_silence_s,
            voice=voice,
        )
        console.print(f"voice server: {url}", highlight=False)
        try:
            with TalkView(conversation, console) as view:
                await _converse(conversation, devices, view, console)
        finally:
            await conversation.aclose()
            _report(conversation, console)


async def _converse(
    conversation: Conversation, devices: Devices, view: TalkView, console: Console
) -> None:
    if devices.wav is not None:
        assert devices.out is not None
        devices.out.parent.mkdir(parents=True, exist_ok=True)
        files = SoundFiles(conversation.playback, devices.wav)
        try:
            await _listen(conversation, files.frames(lambda: conversation.is_idle), view)
        finally:
            files.write(devices.out)
        return
    card = SoundCard(
        conversation.playback,
        microphone=_device(devices.microphone),
        loudspeaker=_device(devices.loudspeaker),
        cancels_echo=devices.cancels_echo,
    )
    for note in card.notes:
        console.print(note, highlight=False)
    if not devices.cancels_echo:
        console.print("use headphones, or start with --loudspeaker; Ctrl-C ends the conversation")
    async with card:
        conversation.greet()
        await _listen(conversation, card.frames(), view)


async def _listen(conversation: Conversation, frames: AsyncIterator[bytes], view: TalkView) -> None:
    """Pass audio on until it ends, or the user presses Ctrl-C."""
    listening = asyncio.create_task(_pass_on(conversation, frames, view))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, listening.cancel)
    await asyncio.wait({listening})
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
    if not listening.cancelled():
        listening.result()


async def _pass_on(
    conversation: Conversation, frames: AsyncIterator[bytes], view: TalkView
) -> None:
    async for pcm in frames:
        await conversation.hear(pcm)
        view.update()


def _device(name: str | None) -> str | int | None:
    return int(name) if name is not None and name.isdecimal() else name


def _report(conversation: Conversation, console: Console) -> None:
    turns = conversation.clock.turns
    percentiles = conversation.clock.percentiles()
    if turns:
        console.print(latency_table(percentiles, len(turns)))
    cuts = sum(message.is_interrupted for message in conversation.history)
    summary = {
        "turns": len(turns),
        "cuts": cuts,
        "false_interruptions": conversation.false_interruptions,
        "latency": {name: asdict(each) for name, each in percentiles.items()},
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    typer.run(main)
