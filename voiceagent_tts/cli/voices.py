"""`voices list`: show voices. A plugin adds the commands that make and remove them."""

import asyncio
from typing import Annotated

import typer

from voiceagent_tts.cli.arguments import Url

app = typer.Typer(help="List voices, and clone or design your own.", no_args_is_help=True)


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
