"""How much faster is our engine than the official package on a CPU, one text at a time?

The official qwen-tts 0.1.1, with the packages that it needs, and our engine's rows speak one text
from one full-size random checkpoint of 0.6B, in turns, each in a separate process. A round measures
the cost of one more frame, from text to samples: a call of `--frames` frames minus one of two
frames, so that the prompt does not count. The ratio is the official median over ours; above 1 ours
is faster. Both put the whole text into the prompt and sample with the checkpoint's settings. The
official package decodes all audio at the end; ours decodes frame by frame, which costs it time
here. The comparisons:

- plain: float32 on both sides, weights as stored;
- float32: float32 on both sides, our products as our engine chooses them on this processor
  (`engine.product_choice`). Also compares peak memory, and the first audio of ten seconds of text;
- bfloat16 and int8: ours in fewer bits against the official float32;
- best: ours in `--best` precision against the official float32 and the official bfloat16.

Targets hold for any processor but for `float32`, whose target is that of an AMD EPYC; where float32
products run at the bandwidth of the memory, 1.1 is what can be had.

To judge the quality of `--best`, the benchmark reports how many of float32's most likely codes
along a speech are also the most likely ones in that precision.

Missing parts are created under `out/`: the packages are downloaded, the checkpoint is generated.
"""

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.answering import Child
from benchmarks.engine.peer_packages import ahead_of_others, package_folder
from testbed.agent_text import agent_monologue
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.product_choice import Precision
from voiceagent_tts.offspring import Following

Official = Literal["float32", "bfloat16"]
"""Precisions of the official package."""

SPEAKER, _LANGUAGE = "ryan", "English"
TEXT = agent_monologue(seed=1, words=22)
"""A text that takes about ten seconds."""

_LONG_S = 10.0
_SHORT_FRAMES = 2
_OUT = Path("out")


@dataclass(frozen=True, slots=True)
class Contest:
    """Two sides that speak in turns.

    Attributes:
        name: name in reports.
        official: precision of the official package.
        ours: our precision.
        layout: layout of our weights.
        target: ratio to reach.
    """

    name: str
    official: Official
    ours: Precision
    layout: Literal["plain", "packed"]
    target: float


@dataclass(frozen=True, slots=True)
class Speech:
    """Measurements of one call by the process that made it."""

    frames: int
    first_audio_s: float
    total_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a contest: milliseconds per frame of every round."""

    contest: Contest
    official: list[float]
    ours: list[float]

    @property
    def frames_ratio(self) -> float:
        """The official median divided by ours."""
        return statistics.median(self.official) / statistics.median(self.ours)


@dataclass(frozen=True, slots=True)
class Sides:
    """Starts the processes of both sides.

    Attributes:
        checkpoint: folder of a CustomVoice model.
        packages: folder of the official package.
        threads: threads of each process.
        text: text to speak.
    """

    checkpoint: Path
    packages: Path
    threads: int
    text: str

    def official(self, precision: Official) -> Child:
        """Start the official package."""
        argv = [
            "-m",
            "benchmarks.engine.official_speaker",
            str(self.checkpoint),
            precision,
            SPEAKER,
        ]
        return self._child(argv, f"official-{precision}", **ahead_of_others(self.packages))

    def ours(self, precision: Precision, layout: str) -> Child:
        """Start our engine's rows."""
        argv = [
            "-m",
            "benchmarks.engine.our_speaker",
            str(self.checkpoint),
            precision,
            layout,
            SPEAKER,
        ]
        return self._child(argv, f"ours-{precision}-{layout}")

    def speak(self, child: Child, frames: int) -> Speech:
        """Make one call of either side."""
        return Speech(**child.ask(text=self.text, language=_LANGUAGE, frames=frames))

    def frame_ms(self, child: Child, frames: int) -> float:
        """Return the milliseconds that one more frame takes."""
        short, long = self.speak(child, _SHORT_FRAMES), self.speak(child, frames)
        return (long.total_s - short.total_s) / (long.frames - short.frames) * 1000

    def choices(self, child: Child, frames: int, codes: list[list[int]]) -> dict[str, Any]:
        """Return the codes that our side chooses along `codes`; without them, along its own."""
        return child.ask(text=self.text, language=_LANGUAGE, frames=frames, codes=codes)

    def _child(self, argv: list[str], name: str, **environment: str) -> Child:
        environment["OMP_NUM_THREADS"] = str(self.threads)
        return Child([sys.executable, *argv], environment, _OUT / f"reference-{name}.log")


def hold(
    contest: Contest, sides: Sides, rounds: int, frames: int, tick: Callable[[], None]
) -> Result:
    """Let both sides speak in turns; the side that begins alternates."""
    with (
        sides.official(contest.official) as official,
        sides.ours(contest.ours, contest.layout) as ours,
    ):
        for child in (official, ours):
            sides.speak(child, _SHORT_FRAMES)
        result = Result(contest, [], [])
        turns = [(official, result.official), (ours, result.ours)]
        for number in range(rounds):
            for child, figures in turns if number % 2 else reversed(turns):
                figures.append(sides.frame_ms(child, frames))
                tick()
    return result


@dataclass(frozen=True, slots=True)
class FirstAudio:
    """Seconds until the first audio of a text of ten seconds, and the peak memory."""

    official: Speech
    ours: Speech


def compare_first_audio(contest: Contest, sides: Sides, tick: Callable[[], None]) -> FirstAudio:
    """Let each side speak for ten seconds, once."""
    frames = round(_LONG_S / FRAME_S)
    with sides.ours(contest.ours, contest.layout) as ours:
        sides.speak(ours, _SHORT_FRAMES)
        our_speech = sides.speak(ours, frames)
        tick()
    with sides.official(contest.official) as official:
        sides.speak(official, _SHORT_FRAMES)
        official_speech = sides.speak(official, frames)
        tick()
    return FirstAudio(official_speech, our_speech)


def top_1_agreement(sides: Sides, best: Precision, frames: int, tick: Callable[[], None]) -> float:
    """Return the share of float32's most likely codes that are also the most likely in `best`."""
    with sides.ours("float32", "packed") as exact:
        expected = sides.choices(exact, frames, [])
        tick()
    with sides.ours(best, "packed") as fast:
        found = sides.choices(fast, frames, expected["codes"])
        tick()
    pairs = [
        pair
        for frame in zip(expected["choices"], found["choices"], strict=True)
        for pair in zip(*frame, strict=True)
    ]
    return statistics.fmean(one == other for one, other in pairs)


def _contests(best: Precision) -> list[Contest]:
    return [
        Contest("plain", "float32", "float32", "plain", 1.1),
        Contest("float32", "float32", "float32", "packed", 2.5),
        Contest("bfloat16", "float32", "bfloat16", "packed", 2.5),
        Contest("int8", "float32", "int8", "packed", 3.0),
        Contest(f"best ({best})", "float32", best, "packed", 4.0),
        Contest(f"best ({best})", "bfloat16", best, "packed", 1.5),
    ]


def _table(results: list[Result]) -> Table:
    table = Table("comparison", "official", "ours", "ratio", "target")
    for result in results:
        contest = result.contest
        cells = [
            f"{precision}: {statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})"
            for precision, ms in ((contest.official, result.official), (contest.ours, result.ours))
        ]
        table.add_row(contest.name, *cells, f"{result.frames_ratio:.2f}", f"{contest.target}")
    return table


def figures(results: list[Result], long: FirstAudio, agreement: float) -> dict[str, Any]:
    """Return the figures of the last line: each ratio and the values that it is made of."""
    plain, equal, half, int8, best, best_vs_half = (
        round(result.frames_ratio, 2) for result in results
    )
    return {
        "frames_ratio_plain": plain,
        "frames_ratio_equal_precision": equal,
        "frames_ratio_bfloat16": half,
        "frames_ratio_int8": int8,
        "frames_ratio_best": best,
        "frames_ratio_best_vs_official_bf16": best_vs_half,
        "first_audio_ratio": round(long.official.first_audio_s / long.ours.first_audio_s, 1),
        "memory_ratio": round(long.official.peak_mb / long.ours.peak_mb, 2),
        "best": results[-1].contest.ours,
        "best_top_1_agreement": round(agreement, 4),
        "ms_per_frame": [
            {
                "comparison": result.contest.name,
                "official": result.contest.official,
                "official_ms": [round(ms, 1) for ms in result.official],
                "our_ms": [round(ms, 1) for ms in result.ours],
            }
            for result in results
        ],
        "official_first_audio_s": round(long.official.first_audio_s, 2),
        "our_first_audio_s": round(long.ours.first_audio_s, 2),
        "official_peak_mb": round(long.official.peak_mb),
        "our_peak_mb": round(long.ours.peak_mb),
    }


def prepared_checkpoint(folder: Path | None) -> Path:
    """Return the given checkpoint, or a random one, which is generated if it does not exist."""
    if folder is not None:
        return folder.absolute()
    made = _OUT / "random-0.6b"
    if not (made / "speech_tokenizer" / "model.safetensors").exists():
        argv = ["-m", "benchmarks.random_models.on_disk", "--out", str(made), "--size", "0.6b"]
        subprocess.run(
            [sys.executable, *argv],
            check=True,
            stdout=sys.stderr,
            preexec_fn=Following(os.getpid()),
        )
    return made.absolute()


@contextlib.contextmanager
def _progress(console: Console, calls: int) -> Iterator[Callable[[], None]]:
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("speaking in turns", total=calls)
        yield lambda: bar.advance(task)


def main(
    checkpoint: Annotated[
        Path | None, typer.Option(help="A CustomVoice model. [default: a random one of 0.6B]")
    ] = None,
    packages: Annotated[
        Path, typer.Option(help="Where the official package's folder is, or will be.")
    ] = _OUT / "peers",
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    frames: Annotated[int, typer.Option(min=3, help="Of each call.")] = 16,
    threads: Annotated[int | None, typer.Option(min=1, help="[default: all cores]")] = None,
    best: Annotated[Precision, typer.Option(help="Our fastest precision here.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Speak one text with the official package and with ours."""
    origin, console = provenance(), Console(stderr=True)
    threads = threads or len(os.sched_getaffinity(0))
    official = package_folder(packages)
    sides = Sides(prepared_checkpoint(checkpoint), official, threads, TEXT)
    contests = _contests(best)
    with _progress(console, 2 * rounds * len(contests) + 4) as tick:
        results = [hold(contest, sides, rounds, frames, tick) for contest in contests]
        long = compare_first_audio(contests[1], sides, tick)
        agreement = top_1_agreement(sides, best, frames, tick)
    console.print(_table(results))
    result = figures(results, long, agreement)
    publish({**result, "rounds": rounds, "frames": frames, "threads": threads, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
