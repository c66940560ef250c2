"""`voices list`, `add`, `design`, `remove` and `export`: show, create and manage voices.

A cloned voice holds the speaker embedding and codes of its reference, computed once and stored as a
safetensors file. A running server offers it for the next context. Files and names are checked
before torch is loaded, which takes seconds.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voiceagent_tts.errors import InvalidRequestError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voiceagent_tts.model.prompt import Cloned
    from voiceagent_tts.voices import VoiceFolder

app = typer.Typer(help="List voices, and clone or design your own.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the voice, as for `--voice`.")]
_SUFFIX = ".safetensors"


def valid_unicode(value: str) -> str:
    """Reject an argument that is not UTF-8, which Python represents with lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("expected UTF-8") from None
    return value


@app.command("list")
def list_voices(
    url: Annotated[
        str | None,
        typer.Option(help="Running server (ws://HOST:PORT). [default: a temporary server]"),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="VOICEAGENT_TTS_API_KEY", help="Key for the server at --url."),
    ] = None,
) -> None:
    """List the voices that a server offers, the default first."""
    from voiceagent_tts.cli.say import print_voices

    asyncio.run(print_voices(url, api_key))


@app.command()
def add(
    name: Name,
    reference: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCE",
            help="3 to 30 s of one voice: WAV, FLAC, MP3 or Ogg; or a file written by `export`.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Base model that will speak the voice: folder or id."),
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            callback=valid_unicode,
            help="Transcript of the reference; with it, the speaking style is cloned too.",
        ),
    ] = "",
    tail_silence: Annotated[
        bool,
        typer.Option(
            help="Append half a second of silence, so that the clone does not repeat the last "
            "sound."
        ),
    ] = True,
) -> None:
    """Clone a voice from a recording and save it as NAME."""
    from voiceagent_tts.cli.files import read_file
    from voiceagent_tts.voices import clone_name

    clone_name(name)
    data = read_file(reference)
    if reference.suffix.lower() == _SUFFIX:
        _save(name, _parse_voice(data))
        return
    if model is None:
        raise InvalidRequestError("--model: expected the Base model that will speak the voice")
    from voiceagent_tts.audio.file_reader import read_audio

    _save(name, _clone(read_audio(data), text, model, tail_silence=tail_silence))


@app.command()
def design(
    name: Name,
    instruct: Annotated[
        str,
        typer.Option(
            callback=valid_unicode, help="Description of the voice: age, timbre, speaking style."
        ),
    ],
    text: Annotated[
        str, typer.Option(callback=valid_unicode, help="Sample text for the designed voice.")
    ],
    model: Annotated[str, typer.Option(help="VoiceDesign model: folder or id.")],
    base: Annotated[str, typer.Option(help="Base model that will speak the voice: folder or id.")],
    language: Annotated[
        str | None, typer.Option(help="Language of the text. [default: detected]")
    ] = None,
    seed: Annotated[int, typer.Option(help="A different seed gives a different voice.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Audio file for the spoken sample text."),
    ] = None,
) -> None:
    """Design a voice from a description, and save a clone of it that stays constant."""
    from voiceagent_tts.cli.files import check_audio_path, write_audio
    from voiceagent_tts.voices import clone_name

    clone_name(name)
    check_audio_path(output)
    samples = _design(instruct, text, model, language, seed)
    voice = _clone(samples, text, base)
    if output is not None:
        from voiceagent_tts.audio.pcm import float_to_pcm

        write_audio(output, float_to_pcm(samples))
    _save(name, voice)


@app.command()
def remove(name: Name) -> None:
    """Delete a cloned voice."""
    _folder().remove(name)


@app.command()
def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="FILE.safetensors", help="File to write.")],
) -> None:
    """Write a cloned voice to a file for `voices add` on another machine."""
    from voiceagent_tts.cli.files import check_target, replacing

    check_target(target, (_SUFFIX,))
    stored = _folder().read(name)
    with replacing(target) as unfinished:
        unfinished.write_bytes(stored)


def _folder() -> "VoiceFolder":
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.voices import VoiceFolder

    return VoiceFolder(read_settings({}).voices_folder.expanduser())


def _save(name: str, voice: "Cloned") -> None:
    saved = _folder().save(name, voice.to_bytes())
    codes = voice.reference_codes
    content = "timbre only" if codes is None else f"timbre and {len(codes)} frames of speech"
    sys.stderr.write(f"saved the voice {saved} ({content}); use it with --voice {saved}\n")


def _parse_voice(data: bytes) -> "Cloned":
    from voiceagent_tts.model.prompt import Cloned

    return Cloned.from_bytes(data)


def _clone(
    samples: "npt.NDArray[np.float32]", text: str, model: str, *, tail_silence: bool = True
) -> "Cloned":
    import torch

    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.model.clone import TAIL_SILENCE_S, load_cloner

    folder = model_folder(model)
    with _working(f"cloning the voice with {folder.name}"):
        cloner = load_cloner(folder)
        tail_silence_s = TAIL_SILENCE_S if tail_silence else 0.0
        return cloner.clone(torch.from_numpy(samples.copy()), text, tail_silence_s)


def _design(
    instruct: str, text: str, model: str, language: str | None, seed: int
) -> "npt.NDArray[np.float32]":
    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.engine.design import design_voice
    from voiceagent_tts.model.checkpoint import load_checkpoint
    from voiceagent_tts.model.codec import load_codec

    folder = model_folder(model)
    with _working(f"designing the voice with {folder.name}"):
        designer, codec = load_checkpoint(folder), load_codec(folder)
        return design_voice(designer, codec, instruct, text, language, seed).numpy()


@contextmanager
def _working(what: str) -> Iterator[None]:
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
