"""`finetune prepare`, `finetune train` and `finetune export`: a voice from recordings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from voiceagent_tts.cli.progress import counted

app = typer.Typer(help="Fine-tune Qwen3-TTS on one speaker.", no_args_is_help=True)

Base = Annotated[str, typer.Option("--model", help="Base model to train: folder or id.")]
BASE_ID = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"


@app.command()
def prepare(
    source: Annotated[
        Path, typer.Argument(help="Folder of audio files with .txt files, or a manifest.jsonl.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the dataset.")],
    model: Base = BASE_ID,
    bad: Annotated[str, typer.Option(help="What happens to a bad clip: skip or refuse.")] = "skip",
    min_s: Annotated[float, typer.Option(help="Minimum length of a clip in seconds.")] = 1.0,
    max_s: Annotated[float, typer.Option(help="Maximum length of a clip in seconds.")] = 20.0,
    min_rate_hz: Annotated[int, typer.Option(help="Minimum sample rate.")] = 16_000,
    loudness_lufs: Annotated[float, typer.Option(help="Loudness of all clips (LUFS).")] = -23.0,
    reference: Annotated[
        str | None,
        typer.Option(help="Clip for the speaker embedding. [default: the cleanest]"),
    ] = None,
    whisper_url: Annotated[
        str | None,
        typer.Option(help="Whisper-compatible server that checks the transcripts."),
    ] = None,
    whisper_model: Annotated[str, typer.Option(help="Model of that server.")] = "whisper-1",
    whisper_key: Annotated[
        str, typer.Option(envvar="VOICEAGENT_TTS_WHISPER_KEY", help="API key of that server.")
    ] = "",
    max_wer: Annotated[
        float, typer.Option(min=0, help="Word error rate above which a clip is a mismatch.")
    ] = 0.25,
) -> None:
    """Check and encode recordings; write the dataset and a report of what was dropped and why."""
    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.training.prepare import PrepareOptions
    from voiceagent_tts.training.prepare import prepare as prepare_dataset
    from voiceagent_tts.training.recording import RecordingLimits
    from voiceagent_tts.training.transcription import Recogniser

    options = PrepareOptions(
        RecordingLimits(min_s, max_s, min_rate_hz, loudness_lufs),
        _choice("--bad", bad, ("skip", "refuse")),
        None if whisper_url is None else Recogniser(whisper_url, whisper_model, whisper_key),
        max_wer,
        reference,
    )
    with counted("preparing") as progress:
        report = prepare_dataset(source, model_folder(model), output, options, progress)
    _print_report(report, output)


def _choice(option: str, value: str, choices: tuple[str, ...]) -> Any:
    from voiceagent_tts.errors import InvalidRequestError

    if value not in choices:
        raise InvalidRequestError(f"{option}: expected {' or '.join(choices)}; got {value}")
    return value


def _print_report(report: dict, output: Path) -> None:
    for clip in report["dropped_clips"]:
        typer.echo(f"dropped {clip['name']}: {clip['problem']}: {clip['detail']}", err=True)
    typer.echo(
        f"{output}: {report['kept']} clips, {report['minutes']:g} minutes; "
        f"{report['dropped']} dropped; reference {report['reference']}"
    )
