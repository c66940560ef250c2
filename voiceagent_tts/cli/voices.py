"""`voices list`, `remove` and `export`: show and manage voices.

A plugin adds `add` and `design`, which make them.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voiceagent_tts.cli.arguments import Url

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings
    from voiceagent_tts.voices import VoiceFolder

app = typer.Typer(help="List voices, and clone or design your own.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the voice, as for `--voice`.")]


@app.command("list")
def list_voices(
    search: Annotated[
        str | None, typer.Argument(metavar="[SEARCH]", help="Part of the names to list.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Only voices for this language (`de`), or for any.")
    ] = None,
    gender: Annotated[str | None, typer.Option(help="Only female or male voices.")] = None,
    url: Url = None,
) -> None:
    """List the voices that a server offers, the default first: name, language, gender, kind."""
    from voiceagent_tts.cli.voice_list import VoiceFilter, print_voices
    from voiceagent_tts.client.address import configured_key

    wanted = VoiceFilter(search, language, gender)
    asyncio.run(print_voices(url, configured_key(None), wanted))


@app.command()
def remove(name: Name) -> None:
    """Delete a cloned voice, and the record of who added it."""
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.server.voice_records import VoiceRecords
    from voiceagent_tts.voices import stored_name

    folder = folder_of(read_settings({}))
    folder.remove(name)  # an unknown name is an error
    with folder.changing():
        VoiceRecords(folder).remove_voice(stored_name(name))


@app.command()
def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="FILE.safetensors", help="File to write.")],
) -> None:
    """Write a cloned voice to a file for `voices add` on another machine."""
    from voiceagent_tts.cli.files import check_target
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.replacing import replacing
    from voiceagent_tts.voices import CLONE_SUFFIX

    check_target(target, (CLONE_SUFFIX,))
    stored = folder_of(read_settings({})).read(name)
    with replacing(target) as unfinished:
        unfinished.write_bytes(stored)


def folder_of(settings: "Settings") -> "VoiceFolder":
    """The folder of the cloned voices of these settings."""
    from voiceagent_tts.voices import VoiceFolder

    return VoiceFolder(settings.clones_folder)
