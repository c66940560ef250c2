"""`voiceagent-tts detect`: whether an audio file has the watermark of this machine's keys."""

from pathlib import Path
from typing import Annotated

import typer


def add_commands(root: typer.Typer) -> None:
    """Add `detect` to the command line."""
    root.command()(detect)


def detect(
    file: Annotated[Path, typer.Argument(help="Audio file: WAV, FLAC, MP3 or Ogg.")],
) -> None:
    """Say whether a file has the watermark of this machine's keys. Exits with 1 if not.

    The keys are those of the server's settings: the file at VOICEAGENT_TTS_WATERMARK_KEY_FILE.
    """
    import json
    from dataclasses import asdict

    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.plugins.provenance.detector import FILE_LIMITS, detect
    from voiceagent_tts.plugins.provenance.keys import watermark_keys
    from voiceagent_tts.plugins.recordings.file_reader import read_audio_file

    keys = watermark_keys(read_settings({}))
    found = detect(read_audio_file(file, FILE_LIMITS), keys)
    typer.echo(json.dumps(asdict(found)))
    raise typer.Exit(0 if found.is_marked else 1)
