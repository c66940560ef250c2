"""`voices list`, `add`, `design`, `remove` and `export`: show, create and manage voices.

A cloned voice is what a prompt needs of its reference, computed once and kept as a safetensors
file; a server that runs speaks with it from its next context on. Files and names are checked
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

app = typer.Typer(help="The voices: list them, and make your own.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What `--voice` will call it.")]
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
        typer.Option(help="A running server (ws://HOST:PORT); without it, one is started."),
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
            help="3 to 30 s of one voice: WAV, FLAC, MP3 or Ogg; or what `export` has written.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="A Base model that will speak it: its folder or id."),
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            callback=valid_unicode, help="What the reference says: its manner is cloned too."
        ),
    ] = "",
    tail_silence: Annotated[
        bool,
        typer.Option(help="Let silence follow the reference, lest its last sound be repeated."),
    ] = True,
) -> None:
    """Clone a voice from a recording and save it as NAME."""
    from voiceagent_tts.cli.files import read_file
    from voiceagent_tts.voices import clone_name

    clone_name(name)
    data = read_file(reference)
    if reference.suffix.lower() == _SUFFIX:
        _keep(name, _check_prompt(data))
        return
    if model is None:
        raise InvalidRequestError("--model: expected the Base model that will speak the voice")
    from voiceagent_tts.audio.file_reader import read_audio

    _keep(name, _hear(read_audio(data), text, model, tail_silence=tail_silence))


@app.command()
def design(
    name: Name,
    instruct: Annotated[
        str, typer.Option(callback=valid_unicode, help="Who speaks: age, timbre, manner.")
    ],
    text: Annotated[
        str, typer.Option(callback=valid_unicode, help="What they say for the voice to be heard.")
    ],
    model: Annotated[str, typer.Option(help="A VoiceDesign model: its folder or id.")],
    base: Annotated[str, typer.Option(help="The Base model that will speak: its folder or id.")],
    language: Annotated[str | None, typer.Option(help="Of the text.")] = None,
    seed: Annotated[int, typer.Option(help="Another one, another voice.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write what the designed voice said.")
    ] = None,
) -> None:
    """Design a voice from a description, and save a clone of it that stays constant."""
    from voiceagent_tts.cli.files import check_audio_path, write_audio
    from voiceagent_tts.voices import clone_name

    clone_name(name)
    check_audio_path(output)
    samples = _design(instruct, text, model, language, seed)
    voice = _hear(samples, text, base)
    if output is not None:
        from voiceagent_tts.audio.pcm import float_to_pcm

        write_audio(output, float_to_pcm(samples))
    _keep(name, voice)


@app.command()
def remove(name: Name) -> None:
    """Delete a cloned voice."""
    _folder().remove(name)


@app.command()
def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="FILE.safetensors")],
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


def _keep(name: str, voice: "Cloned") -> None:
    kept = _folder().save(name, voice.to_bytes())
    codes = voice.reference_codes
    heard = "its timbre" if codes is None else f"its timbre and {len(codes)} frames of its speech"
    sys.stderr.write(f"{kept}: a voice with {heard}; `--voice {kept}` speaks with it\n")


def _check_prompt(data: bytes) -> "Cloned":
    from voiceagent_tts.model.prompt import Cloned

    return Cloned.from_bytes(data)


def _hear(
    samples: "npt.NDArray[np.float32]", text: str, model: str, *, tail_silence: bool = True
) -> "Cloned":
    import torch

    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.model.clone import TAIL_SILENCE_S, load_cloner

    folder = model_folder(model)
    with _working(f"hearing it with {folder.name}"):
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
    with _working(f"designing it with {folder.name}"):
        designer, codec = load_checkpoint(folder), load_codec(folder)
        return design_voice(designer, codec, instruct, text, language, seed).numpy()


@contextmanager
def _working(what: str) -> Iterator[None]:
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
