"""What does each precision of a CPU save, and how much does it round?

Our engine's rows speak one text from a checkpoint in every precision that a CPU has, each in a
process of its own and in turns. For each, the benchmark reports

- the milliseconds of one more frame, from text to samples, and the memory while speaking and at its
  peak, which comes while the weights are loaded;
- the relative error (Euclidean norm) of the output of every layer and of the logits, along a speech
  that float32 with plain products generates from the same prompt;
- the share of that speech's most likely codes that stay the most likely ones. With random weights,
  whose logits are close to each other, this says little about a trained model.

A random checkpoint of the size 0.6B is created under `out/` if none is given.
"""

import contextlib
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.common.report import provenance, publish
from benchmarks.engine.reference import SPEAKER, TEXT, Sides, prepared_checkpoint
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.product_choice import Precision, choose_products
from voiceagent_tts.engine.replay import Choices, choices_along
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8", "int4", "auto")
"""Without float16, which is for GPUs."""

_FRAMES, _WARM_FRAMES = 14, 2

Outputs = dict[str, Tensor]
"""Outputs by layer: `talker 0` to the last layer, `talker logits`, and so on."""


@contextlib.contextmanager
def recorded(network: Network) -> Iterator[dict[str, list[Tensor]]]:
    """Record the outputs of every layer and head within the block."""
    found: dict[str, list[Tensor]] = defaultdict(list)
    handles: list[Any] = []

    def record(module: nn.Module, name: str) -> None:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            output = sum(output) if isinstance(output, tuple) else output  # stream and its addend
            found[name].append(output.float().flatten())

        handles.append(module.register_forward_hook(keep))

    for name, part in (("talker", network.talker), ("predictor", network.code_predictor)):
        for number, layer in enumerate(part.transformer.layers):
            record(layer, f"{name} {number}")
    record(network.talker.head, "talker logits")
    for head in network.code_predictor.heads:
        record(head, "predictor logits")
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def along(
    network: Network, prompt: Prompt, codes: Tensor, penalty: float
) -> tuple[Outputs, Choices]:
    """Run a network along given codes; return the outputs of its layers, and its choices."""
    with recorded(network) as found:
        choices = choices_along(network, prompt, codes, penalty)
    return {name: torch.cat(parts) for name, parts in found.items()}, choices


def errors(made: Outputs, exact: Outputs) -> dict[str, float]:
    """Return the relative error of each output."""
    return {
        name: float((made[name] - output).norm() / output.norm()) for name, output in exact.items()
    }


class Rounding:
    """Compares precisions with float32 and plain products along one speech.

    Args:
        folder: folder of a CustomVoice model.
        frames: length of the speech.
    """

    def __init__(self, folder: Path, frames: int) -> None:
        self._folder = folder
        exact = load_checkpoint(folder, is_packed=False)
        builder = PromptBuilder(exact.config, exact.tokenizer)
        self._prompt = builder.build(TEXT, Preset(SPEAKER), "English")
        sampling = sampling_params(exact.generation, seed=0)
        self._penalty = sampling.repetition_penalty
        request = Request(self._prompt, sampling, frames)
        (self._codes,) = generate_codes(exact.network, [request], 1, len(self._prompt) + frames)
        self._exact, self._choices = self._along(exact)

    def _along(self, checkpoint: Checkpoint) -> tuple[Outputs, Choices]:
        return along(checkpoint.network, self._prompt, self._codes, self._penalty)

    def of(self, precision: Precision) -> dict[str, Any]:
        """Return the errors and the share of equal choices of a precision."""
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        checkpoint = load_checkpoint(self._folder, dtype, is_packed=False)
        products = choose_products(checkpoint.network, precision)
        products.apply(checkpoint.network)
        made, choices = self._along(checkpoint)
        equal = (choices.codes == self._choices.codes).float().mean()
        return {
            "products": str(products),
            "top_1_agreement": round(float(equal), 4),
            "relative_errors": {
                name: float(f"{error:.3g}") for name, error in errors(made, self._exact).items()
            },
        }


def time_frames(sides: Sides, rounds: int) -> dict[str, dict[str, Any]]:
    """Let every precision speak in turns; return milliseconds per frame, and the memory."""
    with contextlib.ExitStack() as stack:
        children = {
            precision: stack.enter_context(sides.ours(precision, "packed"))
            for precision in PRECISIONS
        }
        for child in children.values():
            sides.speak(child, _WARM_FRAMES)
        frames_ms = {precision: list[float]() for precision in PRECISIONS}
        for _ in range(rounds):
            for precision, child in children.items():
                frames_ms[precision].append(sides.frame_ms(child, _FRAMES))
        speeches = {name: sides.speak(child, _WARM_FRAMES) for name, child in children.items()}
    return {
        precision: {
            "ms_per_frame": round(statistics.median(frames_ms[precision]), 1),
            "rounds_ms": [round(ms, 1) for ms in frames_ms[precision]],
            "memory_mb": round(speech.memory_mb),
            "peak_mb": round(speech.peak_mb),
        }
        for precision, speech in speeches.items()
    }


def table_of(found: dict[str, dict[str, Any]]) -> Table:
    """Return the figures as a table."""
    table = Table(
        "precision",
        "ms a frame",
        "memory",
        "peak",
        "talker logits",
        "predictor logits",
        "same codes",
    )
    for precision, figures in found.items():
        rounding = figures["relative_errors"]
        table.add_row(
            precision,
            f"{figures['ms_per_frame']:.0f}",
            f"{figures['memory_mb']:,} MB",
            f"{figures['peak_mb']:,} MB",
            f"{rounding['talker logits']:.2g}",
            f"{rounding['predictor logits']:.2g}",
            f"{figures['top_1_agreement']:.1%}",
        )
    return table


def main(
    checkpoint: Annotated[
        Path | None, typer.Option(help="A CustomVoice model. [default: a random one of 0.6B]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    frames: Annotated[int, typer.Option(min=1, help="Of the speech that is compared.")] = 12,
    threads: Annotated[int | None, typer.Option(min=1, help="[default: all cores]")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Compare the precisions of a CPU: time, memory and rounding."""
    origin, console = provenance(), Console(stderr=True)
    threads = threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    folder = prepared_checkpoint(checkpoint)
    with console.status("speaking in turns"):
        times = time_frames(Sides(folder, Path(), threads, TEXT), rounds)
    with console.status("comparing layers"):
        rounding = Rounding(folder, frames)
        found = {name: {**times[name], **rounding.of(name)} for name in PRECISIONS}
    console.print(table_of(found))
    publish({"precisions": found, "rounds": rounds, "threads": threads, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
