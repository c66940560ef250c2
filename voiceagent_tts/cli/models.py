"""`models list` and `models download`: the published models and their local copies."""

import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="List and download the models of Qwen3-TTS, Pocket TTS, hibari and Kokoro.",
    no_args_is_help=True,
)


@app.command("list")
def list_models() -> None:
    """List the published models and the codec, and their folders on this machine."""
    from voiceagent_tts.cli.voice_list import table
    from voiceagent_tts.seam.engine_kind import engine_kinds

    models = [each for kind in engine_kinds().values() for each in kind.published_models()]
    sys.stdout.write(table([(model.name, model.purpose, model.place) for model in models]))


@app.command()
def download(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model id, also with @REVISION; the name of a model of Pocket TTS, of a voice "
            "of hibari, or kokoro. `models list` shows them.",
        ),
    ],
    source: Annotated[str, typer.Option(help="Hub to use: hf or modelscope.")] = "hf",
) -> None:
    """Download a model, continue an interrupted download, and check every file.

    HF_ENDPOINT selects another hub with the same API, HF_HOME the folder on this machine.
    """
    from voiceagent_tts.cli.progress import counted
    from voiceagent_tts.errors import InvalidRequestError
    from voiceagent_tts.hub import check_files, download_model, parse_id
    from voiceagent_tts.seam.engine_kind import engine_kinds

    if source not in ("hf", "modelscope"):
        raise InvalidRequestError(f"--source: expected hf or modelscope; got {source}")
    for kind in engine_kinds().values():
        if (place := kind.download(model)) is not None:
            sys.stdout.write(f"{place}\n" if place else "")
            return
    absent = [kind.name for kind in engine_kinds().values() if not kind.is_installed()]
    if absent and "/" not in model:
        raise InvalidRequestError(
            f"{model}: expected an id such as OWNER/NAME, or a name of `models list`, which shows "
            f"the models of installed extras; not installed: {', '.join(absent)}"
        )
    folder = download_model(parse_id(model), source)
    with counted("checking") as progress:
        check_files(folder, progress)
    sys.stdout.write(f"{folder}\n")


def aligner_folder(model: str | None) -> str | None:
    """Return the folder of a forced aligner; by default the published one's, if it is here."""
    from voiceagent_tts.hub import ALIGNER_ID, fetch_model, parse_id, stored_folder

    folder = fetch_model(model) if model is not None else stored_folder(parse_id(ALIGNER_ID))
    return None if folder is None else str(folder)
