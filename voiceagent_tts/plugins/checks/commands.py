"""`voiceagent-tts verify` and `voiceagent-tts doctor`: what works on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.cli.arguments import valid_unicode
from voiceagent_tts.errors import InvalidRequestError


def add_commands(root: typer.Typer) -> None:
    """Add `verify` and `doctor` to the command line."""
    root.command()(verify)
    root.command()(doctor)


def verify(
    model: Annotated[
        str | None, typer.Option(help="Qwen3-TTS model to check: folder or id.")
    ] = None,
    aligner: Annotated[
        str | None, typer.Option(help="Qwen3-ForcedAligner to check: folder or id.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16; on a CPU also int8 or auto."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Recording of 3 to 30 s that a Base model clones.")
    ] = None,
    text: Annotated[
        str, typer.Option(callback=valid_unicode, help="Transcript of the reference.")
    ] = "",
) -> None:
    """Check that a model or an aligner works correctly on this machine. Exits with 1 if not."""
    from voiceagent_tts.plugins.checks.verify_command import verify_aligner, verify_model

    if model is not None and aligner is None:
        holds = verify_model(model, None, precision, reference, text)
    elif aligner is not None and model is None:
        holds = verify_aligner(aligner, None, precision)
    else:
        raise InvalidRequestError("expected exactly one of --model and --aligner")
    raise typer.Exit(0 if holds else 1)


def doctor(
    production: Annotated[
        bool,
        typer.Option("--production", help="Judge whether the settings are safe for strangers."),
    ] = False,
) -> None:
    """Report what works on this machine. Exits with 1 if a server could not speak.

    With --production, exits with 1 if callers who do not trust each other could harm each other.
    """
    if production:
        from voiceagent_tts.plugins.checks.production import examine_production

        raise typer.Exit(0 if asyncio.run(examine_production()) else 1)
    from voiceagent_tts.plugins.checks.doctor import examine

    raise typer.Exit(0 if asyncio.run(examine()) else 1)
