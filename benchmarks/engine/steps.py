"""How long does a frame of 1 to 256 rows take, in which stages, and how far is it from the limit?

The engine's rows, built as a server builds them, all speak at once. For every number of rows the
benchmark measures the milliseconds of a step (one frame of every row), by stage (talker, code
predictor, codec, host), and those of a prompt. It compares them with the card's roofline
(`benchmarks.engine.roofline`): the datasheet's figures if the card is known, else measured ones. It
also measures the time until a lone row's first audio, with a cold prompt and with a prepared
prefix.

Without `--model` the weights are random, of the published sizes: a step's time does not depend on
their values. The codec works in windows of twelve frames, as it does for rows with enough lead; its
roofline assumes bfloat16, whatever precision it runs in.
"""

from pathlib import Path
from typing import Annotated, Literal, cast

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks.common.report import provenance, publish
from benchmarks.engine.bench import ROWS, build_bench, measure_rows
from benchmarks.engine.figures import table_of
from benchmarks.engine.plot import plot
from testbed.random_model import published_random_model
from voiceagent_tts.engine.model_source import FolderSource
from voiceagent_tts.engine.options import KernelChoice, Qwen3Options
from voiceagent_tts.engine.product_choice import Precision
from voiceagent_tts.model.attention import AttentionBackend
from voiceagent_tts.model.config import CODEC_FOLDER, read_codec_config

OUT = Path("out")


def main(
    model: Annotated[str | None, typer.Option(help="A CustomVoice model's folder.")] = None,
    size: Annotated[Literal["0.6b", "1.7b"], typer.Option(help="Without --model.")] = "1.7b",
    rows: Annotated[list[int] | None, typer.Option(help="May be repeated; ascending.")] = None,
    positions: Annotated[int, typer.Option(min=1, help="That rows look back over.")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Timed for each number of rows.")] = 48,
    rounds: Annotated[int, typer.Option(min=1, help="Of a lone row's first sound.")] = 20,
    device: Annotated[str | None, typer.Option(help="A GPU where there is one.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    attention: Annotated[str | None, typer.Option(help="sdpa or flash.")] = None,
    kernels: Annotated[str, typer.Option(help="auto, plain or fused.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
    png: Annotated[Path, typer.Option(help="Where the plot goes.")] = OUT / "engine.png",
) -> None:
    """Measure steps by rows and stage."""
    counts = sorted(rows or ROWS)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    source = published_random_model(size, OUT, device)
    codec = source.codec_config.decoder_config
    if model is not None:
        source = FolderSource(Path(model))
        codec = read_codec_config(source.folder / CODEC_FOLDER).decoder_config
    options = Qwen3Options(
        source.name,
        device,
        cast("Precision | None", precision),
        rows=counts[-1],
        capacity=positions + steps + 128,
        attention=cast("AttentionBackend | None", attention),
        kernels=cast("KernelChoice", kernels),
    )
    bench = build_bench(options, source, codec)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rows", total=len(counts))
        figures = measure_rows(bench, counts, positions, steps, lambda: progress.advance(task))
    described = bench.described
    title = f"{described['model']} on {described['device']}, {described['precision']}"
    Console().print(table_of(f"{title}: ms for a frame of all rows", figures["lines"]))
    plot(title, figures["lines"], png)
    publish({**described, **figures, **bench.first_sounds(rounds), **provenance()}, json)


if __name__ == "__main__":
    typer.run(main)
