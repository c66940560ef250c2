"""`voiceagent-tts batch`: speak a folder of texts into files."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.cli.arguments import Speed, Url


def add_commands(root: typer.Typer) -> None:
    """Add `batch` to the command line."""
    root.command()(batch)


def batch(
    folder: Annotated[Path, typer.Argument(help="Folder of texts: .txt and .md files in UTF-8.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the audio files.")],
    audio_format: Annotated[
        str, typer.Option("--format", help="Audio format: wav, flac, mp3 or ogg.")
    ] = "wav",
    words: Annotated[
        bool, typer.Option("--words", help="Also write word times, as .json.")
    ] = False,
    voice: Annotated[str | None, typer.Option(help="Voice name; `voices list` shows them.")] = None,
    language: Annotated[str | None, typer.Option(help="Language code. [default: detected]")] = None,
    instruct: Annotated[
        str | None, typer.Option(help="Speaking style, or a description of the voice.")
    ] = None,
    speed: Speed = 1.0,
    lexicon: Annotated[Path | None, typer.Option(help="TOML file of pronunciations.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Texts spoken in parallel.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Speak finished texts again.")] = False,
    url: Url = None,
) -> None:
    """Speak every text of a folder into audio files. Exits with 1 if a text was skipped."""
    from voiceagent_tts.cli.files import lexicon_entries
    from voiceagent_tts.client.address import configured_key
    from voiceagent_tts.plugins.batch.folder import BatchRequest, audio_format_of, speak_folder

    request = BatchRequest(
        folder, output, audio_format_of(audio_format), words, voice, language, instruct, speed,
        lexicon_entries(lexicon), jobs, force, url,
        configured_key(None),
    )  # fmt: skip
    raise typer.Exit(0 if asyncio.run(speak_folder(request)) else 1)
