"""How much faster is our engine than the official package on a CPU, one text at a time?

The official qwen-tts 0.1.1, with the packages that it needs, and our engine's rows speak one text
from one full-size random checkpoint of 0.6B, in turns, each in a separate process. A round measures
the cost of one more frame, from text to samples: a call of `--frames` frames minus one of two
frames, so that the prompt does not count. The ratio is the official median over ours; above 1 ours
is faster. Both put the whole text into the prompt and sample with the checkpoint's settings. The
official package decodes all audio at the end; ours decodes frame by frame, which costs it time
here. The official package speaks in float32. The comparisons:

- float32: float32 on both sides, our products as our engine chooses them on this processor
  (`engine.device_choice`). Also compares the first audio of ten seconds of text;
- bfloat16, int8 and best: ours in fewer bits, at last in those that are fastest here.

Targets hold for any processor but for `float32`, whose target is that of an AMD EPYC; where float32
products run at the bandwidth of the memory, 1.1 is what can be had.

Missing parts are created under `out/`: the packages are downloaded, the checkpoint is generated.
"""

import os
import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.child import Ask, child
from benchmarks.engine.official_speaker import package_folder
from benchmarks.random_models.model import published_random_model
from testbed.agent_text import agent_monologue
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.options import Precision

_SPEAKER, _LANGUAGE = "ryan", "English"
_TEXT = agent_monologue(seed=1, words=22)
"""A text that takes about ten seconds."""
_LONG_FRAMES = round(10.0 / FRAME_S)
_SHORT_FRAMES = 2
_OUT = Path("out")


@dataclass(frozen=True, slots=True)
class Contest:
    """Two sides that speak in turns.

    Attributes:
        figure: name of the ratio in the JSON line.
        name: name in the table.
        ours: our precision.
        target: ratio to reach.
    """

    figure: str
    name: str
    ours: Precision
    target: float


_BEST: Precision = "auto"
"""Our fastest precision."""
CONTESTS = (
    Contest("frames_ratio_equal_precision", "float32", "float32", 2.5),
    Contest("frames_ratio_bfloat16", "bfloat16", "bfloat16", 2.5),
    Contest("frames_ratio_int8", "int8", "int8", 3.0),
    Contest("frames_ratio_best", f"best ({_BEST})", _BEST, 4.0),
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a contest: milliseconds per frame of every round."""

    contest: Contest
    official_ms: list[float]
    our_ms: list[float]

    @property
    def ratio(self) -> float:
        """The official median divided by ours."""
        return round(statistics.median(self.official_ms) / statistics.median(self.our_ms), 2)


@dataclass(frozen=True, slots=True)
class Speech:
    """Measurements of one call by the process that made it."""

    frames: int
    first_audio_s: float
    total_s: float


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
    text: str = _TEXT

    def official(self) -> AbstractContextManager[Ask]:
        """Start the official package, in float32."""
        given = str(self.packages), str(self.checkpoint), _SPEAKER
        return child("benchmarks.engine.official_speaker.load", *given, threads=self.threads)

    def ours(self, precision: Precision = "float32") -> AbstractContextManager[Ask]:
        """Start our engine's rows."""
        given = str(self.checkpoint), precision, _SPEAKER
        return child("benchmarks.engine.our_speaker.load", *given, threads=self.threads)

    def speak(self, ask: Ask, frames: int) -> Speech:
        """Make one call of either side."""
        return Speech(**ask(text=self.text, language=_LANGUAGE, frames=frames))

    def hold(self, contest: Contest, rounds: int, frames: int) -> Result:
        """Let both sides speak in turns; the side that begins alternates."""
        result = Result(contest, [], [])
        with self.official() as official, self.ours(contest.ours) as ours:
            for ask in (official, ours):
                self.speak(ask, _SHORT_FRAMES)
            turns = [(official, result.official_ms), (ours, result.our_ms)]
            for number in range(rounds):
                for ask, figures_ms in turns if number % 2 else reversed(turns):
                    figures_ms.append(self._frame_ms(ask, frames))
        return result

    def _frame_ms(self, ask: Ask, frames: int) -> float:
        short, long = self.speak(ask, _SHORT_FRAMES), self.speak(ask, frames)
        return (long.total_s - short.total_s) / (long.frames - short.frames) * 1000

    def long_speeches(self) -> tuple[Speech, Speech]:
        """Let the official package and ours speak for ten seconds in float32, once each."""
        speeches: list[Speech] = []
        for start in (self.official, self.ours):
            with start() as ask:
                self.speak(ask, _SHORT_FRAMES)
                speeches.append(self.speak(ask, _LONG_FRAMES))
        return speeches[0], speeches[1]


def figures(results: Sequence[Result], long: tuple[Speech, Speech]) -> dict[str, Any]:
    """Return the figures of the last line: each ratio and the values that it is made of."""
    official, ours = long
    return {
        **{result.contest.figure: result.ratio for result in results},
        "first_audio_ratio": round(official.first_audio_s / ours.first_audio_s, 1),
        "best": results[-1].contest.ours,
        "ms_per_frame": [
            {
                "comparison": result.contest.name,
                "official_ms": [round(ms, 1) for ms in result.official_ms],
                "our_ms": [round(ms, 1) for ms in result.our_ms],
            }
            for result in results
        ],
        "official_first_audio_s": round(official.first_audio_s, 2),
        "our_first_audio_s": round(ours.first_audio_s, 2),
    }


def _table(results: Sequence[Result]) -> Table:
    table = Table("comparison", "official", "ours", "ratio", "target")
    for result in results:
        contest = result.contest
        sides = ("float32", result.official_ms), (contest.ours, result.our_ms)
        cells = [
            f"{precision}: {statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})"
            for precision, ms in sides
        ]
        table.add_row(contest.name, *cells, f"{result.ratio:.2f}", f"{contest.target}")
    return table


def _random_checkpoint() -> Path:
    return published_random_model("0.6b", _OUT, "cpu").ready_folder(_OUT / "random-0.6b")


def main(
    checkpoint: Annotated[
        Path | None, typer.Option(help="A CustomVoice model. [default: a random one of 0.6B]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    frames: Annotated[int, typer.Option(min=3, help="Of each call.")] = 16,
    threads: Annotated[int | None, typer.Option(min=1, help="[default: all cores]")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Speak one text with the official package and with ours."""
    origin, console = provenance(), Console(stderr=True)
    threads = threads or len(os.sched_getaffinity(0))
    folder = (checkpoint or _random_checkpoint()).absolute()
    sides = Sides(folder, package_folder(_OUT / "peers"), threads)
    with console.status("speaking in turns"):
        results = [sides.hold(contest, rounds, frames) for contest in CONTESTS]
        result = figures(results, sides.long_speeches())
    console.print(_table(results))
    publish({**result, "rounds": rounds, "frames": frames, "threads": threads, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
