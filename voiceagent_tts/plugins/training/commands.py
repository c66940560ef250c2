"""`finetune prepare`, `finetune train` and `finetune export`: a voice from recordings."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from voiceagent_tts.cli.progress import counted
from voiceagent_tts.cli.undeclared import KEPT, make, options_in

if TYPE_CHECKING:
    from voiceagent_tts.plugins.training.train import TrainJob

app = typer.Typer(help="Fine-tune Qwen3-TTS on one speaker.", no_args_is_help=True)

Base = Annotated[str, typer.Option("--model", help="Base model to train: folder or id.")]
BASE_ID = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"


def add_commands(root: typer.Typer) -> None:
    """Add `finetune` to the command line."""
    root.add_typer(app, name="finetune")


@app.command(context_settings=KEPT)
def prepare(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            exists=True, help="Folder of audio files with .txt files, or a manifest.jsonl."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the dataset.")],
    model: Base = BASE_ID,
    whisper_url: Annotated[
        str | None,
        typer.Option(
            help="Whisper-compatible server that checks the transcripts; its key is in "
            "VOICEAGENT_TTS_WHISPER_KEY."
        ),
    ] = None,
    whisper_model: Annotated[str, typer.Option(help="Model of that server.")] = "whisper-1",
) -> None:
    """Check and encode recordings; write the dataset and a report of what was dropped and why.

    docs/finetuning.md lists further options, such as --min-s 2 and --bad refuse.
    """
    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.plugins.recordings.recogniser import Recogniser
    from voiceagent_tts.plugins.training.prepare import PrepareOptions
    from voiceagent_tts.plugins.training.prepare import prepare as prepare_dataset
    from voiceagent_tts.plugins.training.recording import RecordingLimits

    limits, rest = get_type_hints(RecordingLimits), get_type_hints(PrepareOptions)
    own = {name: rest[name] for name in ("bad", "max_wer", "reference")}
    given = options_in(context, limits | own)
    options = replace(
        make(PrepareOptions, {name: given[name] for name in given.keys() & own.keys()}),
        limits=make(RecordingLimits, {name: given[name] for name in given.keys() & limits.keys()}),
        recogniser=None
        if whisper_url is None
        else Recogniser(
            whisper_url, whisper_model, os.environ.get("VOICEAGENT_TTS_WHISPER_KEY", "")
        ),
    )
    with counted("preparing") as progress:
        report = prepare_dataset(source, fetch_model(model), output, options, progress)
    _print_report(report, output)


def _print_report(report: dict, output: Path) -> None:
    for clip in report["dropped_clips"]:
        typer.echo(f"dropped {clip['name']}: {clip['problem']}: {clip['detail']}", err=True)
    typer.echo(
        f"{output}: {report['kept']} clips, {report['minutes']:g} minutes; "
        f"{report['dropped']} dropped; reference {report['reference']}"
    )


@app.command(context_settings=KEPT)
def train(
    context: typer.Context,
    dataset: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Folder of a prepared dataset.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the run; one that is there resumes.")
    ],
    model: Base = BASE_ID,
) -> None:
    """Train on a dataset. Ctrl-C saves the run; the same command resumes it.

    docs/finetuning.md lists further options, such as --epochs 5 and --lora-rank 0.
    """
    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.model.checkpoint import find_device
    from voiceagent_tts.plugins.training.options import LORA_LEARNING_RATE, LORA_RANK, TrainOptions
    from voiceagent_tts.plugins.training.train import TrainJob

    place = find_device(None)
    given = {
        "lora_rank": LORA_RANK,
        "precision": "float32" if place.type == "cpu" else "mixed",
        **options_in(context, get_type_hints(TrainOptions)),
    }
    options = make(TrainOptions, given)
    if options.lora_rank and "learning_rate" not in given:
        options = replace(options, learning_rate=LORA_LEARNING_RATE)
    job = TrainJob(dataset, fetch_model(model), output, place, options)
    _train(job)


def _train(job: "TrainJob") -> None:
    import signal
    from types import FrameType

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from voiceagent_tts.plugins.training.train import Progress
    from voiceagent_tts.plugins.training.train import train as train_voice

    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        is_stopping = True

    columns = (
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    )  # fmt: skip
    console = Console(stderr=True)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("loading", total=None)

            def show(progress: Progress) -> None:
                best = progress.validation_loss
                held_out = "" if best is None else f", best validation {best:.3f}"
                bar.update(
                    task,
                    completed=progress.step,
                    total=progress.steps,
                    description=f"loss {progress.loss:.3f}{held_out}",
                )

            outcome = train_voice(job, show, lambda: is_stopping)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    typer.echo(f"{job.output}: {outcome}")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the checkpoint.")],
    speaker: Annotated[str, typer.Option(help="Name of the speaker, in lower case.")],
    consent: Annotated[
        str, typer.Option(help="Who agreed to this voice, when, and to what; kept in the card.")
    ],
    verify: Annotated[
        bool, typer.Option(help="Check the checkpoint, as `voiceagent-tts verify` does.")
    ] = True,
) -> None:
    """Write a run as a CustomVoice checkpoint. Exits with 1 if it does not work correctly."""
    from voiceagent_tts.plugins.checks.verify_command import verify_model
    from voiceagent_tts.plugins.training.export import ExportJob
    from voiceagent_tts.plugins.training.export import export as export_voice
    from voiceagent_tts.plugins.training.model_card import Consent

    export_voice(ExportJob(run, output, speaker, Consent(consent)))
    typer.echo(f"{output}: speaks as {speaker}; voiceagent-tts serve --model {output}")
    if verify and not verify_model(str(output), None, None, None, ""):
        raise typer.Exit(1)
