"""Which sizes should CUDA graphs be captured in for a load, and how much do they pad?

The real engine, over a tiny model, receives calls as a Poisson process. Its clock advances with
every step by the time that the step would take on a card: `--first-row-ms` and `--further-row-us`,
or figures that `benchmarks.engine.steps` has written. The benchmark records the sizes that passes
and codec calls would have if every size had a graph; these are equal on any machine. It reports,
for each kind of call,

- the waste of the captured sizes (`engine.sizes`): the share of places that are padding;
- the best list of equally many sizes, and its waste.

`--json` writes the lists and the estimated memory of the captured graphs.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import loads
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from testbed.agent_text import agent_sentences
from testbed.checkpoint import ready_checkpoint
from testbed.tiny import TINY_CODEC, tiny_model
from voiceagent_tts.engine import codec_stream
from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.passes import Passes
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import fitting, graph_sizes
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.seam.commands import Command, Credit, SpeechOptions, Submit

_OUT = Path("out/buckets")
_CAPACITY = 1024
_ENDLESS = 10**12
_GRAPH_MB = 6.0
"""Approximate memory of one graph, in addition to the tensors of its passes."""


@dataclass(slots=True)
class Recording:
    """Sizes of calls and their frequencies: rows of steps, prompt lengths, rows of codec calls."""

    rows: Counter[int] = field(default_factory=Counter[int])
    prompts: Counter[int] = field(default_factory=Counter[int])
    codec: dict[int, Counter[int]] = field(default_factory=dict[int, Counter[int]])

    def by_name(self) -> dict[str, Counter[int]]:
        """Return the sizes by kind of call."""
        codec = {f"codec, {frames} frames": self.codec[frames] for frames in sorted(self.codec)}
        return {"rows of a step": self.rows, "positions of a prompt": self.prompts, **codec}


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Record the sizes of all calls of runners in this process within the block."""
    recorded = Recording()
    predict, prefill = Passes.code_predictor_step, Passes.prefill
    split = codec_stream.split_windows

    def record_predict(passes: Passes, count: int) -> None:
        recorded.rows[count] += 1
        predict(passes, count)

    def record_prefill(passes: Passes, count: int, length: int, window: int) -> None:
        recorded.prompts[length] += count
        prefill(passes, count, length, window)

    def record_windows(*arguments: Any) -> Iterator[tuple[int, Any]]:
        for frames, windows in split(*arguments):
            recorded.codec.setdefault(frames, Counter())[len(windows)] += 1
            yield frames, windows

    with (
        patch.object(Passes, "code_predictor_step", record_predict),
        patch.object(Passes, "prefill", record_prefill),
        patch.object(codec_stream, "split_windows", record_windows),
    ):
        yield recorded


class Load:
    """An engine on a simulated clock, with calls that arrive at random.

    Args:
        model: folder of a CustomVoice model.
        rows: rows of the engine.
        frames: length of every sequence.
        step_s: returns the seconds of a step by its number of rows.
    """

    def __init__(self, model: Path, rows: int, frames: int, step_s: Callable[[int], float]) -> None:
        checkpoint = load_checkpoint(model)
        generation = replace(checkpoint.generation, max_new_tokens=frames)
        checkpoint = replace(checkpoint, generation=generation)
        self._now_s, self._step_s = 0.0, step_s
        self._commands: list[Command] = []
        runner = Runner(checkpoint, load_codec(model), rows, _CAPACITY)
        voices = VoiceCache(checkpoint.config, None)
        self._engine = Qwen3Engine(
            self._receive,
            lambda event: None,
            checkpoint,
            runner,
            voices,
            "",
            None,
            lambda: self._now_s,
        )

    def _receive(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def run(self, rate: float, seconds: float, seed: int) -> None:
        """Simulate `seconds` with `rate` calls per second."""
        rng, texts = random.Random(seed), agent_sentences(seed)
        voice = self._engine.capabilities.voices[0]
        next_s, context = rng.expovariate(rate), 0
        while self._now_s < seconds:
            while next_s <= self._now_s:
                submit = Submit(
                    context, next(texts), 0, more=False, voice=voice, language="en",
                    feeding="token", options=SpeechOptions(seed=context),
                )  # fmt: skip
                self._commands += [submit, Credit(context, self._now_s, _ENDLESS)]
                next_s, context = next_s + rng.expovariate(rate), context + 1
            is_idle = self._engine.step() is None
            waited_s = next_s - self._now_s if is_idle else self._step_s(self._engine.rows_used)
            self._now_s += max(waited_s, 1e-6)


def best_sizes(counts: Mapping[int, int], most: int, graphs: int) -> tuple[int, ...]:
    """Return the list of at most `graphs` sizes that needs the least padding.

    Args:
        counts: requested size -> number of calls.
        most: largest size that a call may request; the last of the list.
        graphs: maximum number of sizes.
    """
    wanted = sorted(size for size in counts if size < most)
    ends = [*wanted, most]
    # chosen[n]: the padding of all sizes up to ends[n], which is captured, and the captured sizes.
    chosen: list[tuple[float, tuple[int, ...]]] = [
        (_padding(counts, 0, end), (end,)) for end in ends
    ]
    best = chosen[-1]
    for _ in range(graphs - 1):
        chosen = [
            min(
                (
                    (chosen[before][0] + _padding(counts, ends[before], end), (*sizes, end))
                    for before in range(place)
                    for sizes in (chosen[before][1],)
                ),
                default=(float("inf"), ()),
            )
            for place, end in enumerate(ends)
        ]
        best = min(best, chosen[-1], key=lambda option: option[0])
    return best[1]


def _padding(counts: Mapping[int, int], above: int, size: int) -> float:
    """Return the padding of all calls above one size that are padded to another."""
    return sum(
        often * (size - wanted) for wanted, often in counts.items() if above < wanted <= size
    )


def waste(counts: Mapping[int, int], sizes: Sequence[int]) -> float:
    """Return the share of places that are padding if calls are padded to these sizes."""
    taken = sum(often * wanted for wanted, often in counts.items())
    places = sum(often * fitting(sizes, wanted) for wanted, often in counts.items())
    return 1 - taken / places if places else 0.0


def compare(recorded: Recording, rows: int) -> dict[str, dict[str, Any]]:
    """Compare the captured list with the best list of equal length, for each kind of call."""
    captured = graph_sizes(rows, _CAPACITY)
    lists: dict[str, Sequence[int]] = {
        "rows of a step": captured.talker.rows,
        "positions of a prompt": captured.talker.prompts,
        **{f"codec, {frames} frames": sizes for frames, sizes in captured.codec.items()},
    }
    figures: dict[str, dict[str, Any]] = {}
    for name, counts in recorded.by_name().items():
        sizes = lists[name]
        best = best_sizes(counts, sizes[-1], len(sizes))
        figures[name] = {
            "calls": counts.total(),
            "captured": list(sizes),
            "captured_waste": round(waste(counts, sizes), 4),
            "best": list(best),
            "best_waste": round(waste(counts, best), 4),
        }
    return figures


def graphs_of(model: Path, rows: int) -> int:
    """Return how many graphs an engine with `rows` rows captures, with fused kernels."""
    sizes = graph_sizes(rows, _CAPACITY, has_windows=False)
    runner = Runner(load_checkpoint(model), load_codec(model), rows, _CAPACITY, sizes=sizes)
    return runner.graphs.count


def table_of(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the figures as a table."""
    table = Table("call", "times", "captured", "waste", "best of equal length", "waste")
    for name, found in figures.items():
        captured, best = (" ".join(map(str, found[kind])) for kind in ("captured", "best"))
        wasted = (f"{found[kind]:.1%}" for kind in ("captured_waste", "best_waste"))
        shown, better = wasted
        table.add_row(name, str(found["calls"]), captured, shown, best, better)
    return table


def measured_steps(lines: Sequence[Mapping[str, float]]) -> Callable[[int], float]:
    """Return the seconds of a step by rows, interpolated from `benchmarks.engine.steps` results."""
    rows = [line["rows"] for line in lines]
    seconds = [line["ms_per_frame"] / 1000 for line in lines]
    return lambda count: float(np.interp(count, rows, seconds))


def main(
    rate: Annotated[float, typer.Option(help="Calls per second.")] = 8.0,
    seconds: Annotated[float, typer.Option(help="Duration on the simulated clock.")] = 10.0,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the engine.")] = 64,
    frames: Annotated[int, typer.Option(min=2, help="Frames of every sequence.")] = 64,
    first_row_ms: Annotated[float, typer.Option(help="Time of a step of one row.")] = 4.0,
    further_row_us: Annotated[float, typer.Option(help="Additional time per further row.")] = 40.0,
    steps: Annotated[
        Path | None, typer.Option(help="Output of benchmarks.engine.steps, used instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of texts and arrivals.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the lists to this file.")] = None,
) -> None:
    """Compare lists of graph sizes for a load."""
    _OUT.mkdir(parents=True, exist_ok=True)
    model = ready_checkpoint(_OUT / "tiny", tiny_model(), TINY_CODEC)

    def step_s(count: int) -> float:
        return first_row_ms / 1e3 + further_row_us / 1e6 * max(0, count - 1)

    took = step_s if steps is None else measured_steps(loads(steps.read_text())["lines"])
    with Console(stderr=True).status(f"{seconds:g} s with {rate:g} calls per second"):
        load = Load(model, rows, frames, took)
        with recording() as recorded:
            load.run(rate, seconds, seed)
    figures = compare(recorded, rows)
    Console().print(table_of(figures))
    graphs = graphs_of(model, rows)
    publish(
        {
            "waste": {name: found["captured_waste"] for name, found in figures.items()},
            "graphs": graphs,
            "graphs_mb": graphs * _GRAPH_MB,
            "calls": figures,
            **provenance(),
        },
        json,
    )


if __name__ == "__main__":
    typer.run(main)
