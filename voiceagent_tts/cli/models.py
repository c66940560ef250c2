"""`models list` and `models download`: the published models and their local copies."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The models of Qwen3-TTS: which there are, and get one.", no_args_is_help=True
)


@app.command("list")
def list_models() -> None:
    """List the published models and the codec, and their folders on this machine."""
    from voiceagent_tts.hub import PUBLISHED, parse_id, stored_folder

    for name, purpose in PUBLISHED.items():
        place = stored_folder(parse_id(name)) or "not on this machine"
        sys.stdout.write(f"{name:<40}{purpose:<42}{place}\n")


@app.command()
def download(
    model: Annotated[str, typer.Argument(metavar="REPO_ID", help="See `models list`.")],
    source: Annotated[str, typer.Option(help="hf or modelscope.")] = "hf",
    revision: Annotated[
        str | None, typer.Option(help="A branch, a tag, or a commit, which never changes.")
    ] = None,
) -> None:
    """Download a model, continue an interrupted download, and check every file.

    HF_ENDPOINT names another hub with the same doors, HF_HOME the place on this machine.
    """
    from voiceagent_tts.errors import InvalidRequestError
    from voiceagent_tts.hub import ModelId, download_model, parse_id

    if source not in ("hf", "modelscope"):
        raise InvalidRequestError(f"--source: expected hf or modelscope; got {source}")
    wanted = parse_id(model)
    folder = download_model(ModelId(wanted.repo, revision or wanted.revision), source)
    _check(folder)
    sys.stdout.write(f"{folder}\n")


def model_folder(model: str) -> Path:
    """The folder of what a user calls a model: a folder, or an id, downloaded where it is not here.

    Raises:
        CheckpointError: it is neither here nor on the hub.
    """
    from voiceagent_tts.hub import fetch_model

    return fetch_model(model)


def aligner_folder(model: str | None) -> str | None:
    """The folder of the forced aligner that was named; else of the published one, if it is here.

    Raises:
        CheckpointError: it was named and is neither here nor on the hub.
    """
    from voiceagent_tts.hub import ALIGNER_ID, parse_id, stored_folder

    folder = model_folder(model) if model is not None else stored_folder(parse_id(ALIGNER_ID))
    return None if folder is None else str(folder)


def _check(folder: Path) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from voiceagent_tts.errors import CheckpointError
    from voiceagent_tts.hub import damaged_files

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("checking")
        damaged = damaged_files(
            folder, lambda done, total: bar.update(task, completed=done, total=total)
        )
    for file in damaged:
        file.resolve().unlink()  # so that the next attempt brings it again
    if damaged:
        names = ", ".join(file.name for file in damaged)
        raise CheckpointError(f"{folder}: damaged and removed: {names}; download it again")
