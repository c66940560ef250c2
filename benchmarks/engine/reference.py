"""How much faster than the official package, on a CPU, one text at a time?

The official qwen-tts 0.1.1, with packages of its own, and our engine's rows speak the same text
from the same full-size random checkpoint of 0.6B, in turns, each in its own process. A round's
figure is what one more frame costs, from text to samples: a call of `--frames` frames, less one of
two frames; so the prompt counts on neither side. A ratio is the official median over ours, so that
above 1 we are faster. Both lay the whole text into the prompt and sample as the checkpoint says.
The official package makes all its sound at the end; ours, frame by frame, pays for that here. The
comparisons:

- plain: float32 on both sides, weights as they are stored;
- packed: float32 on both sides, ours laid out for the processor (`model.packed`), as our engine
  does: the equal precision of the result, also of its memory (peak of the process) and of its
  first audio, of a text of ten seconds: the official package gives its sound when all is made;
- best: ours in `--best` precision against the official float32 and the official bfloat16.

How far `--best` is trusted: along a speech in float32, how many of the codes that float32 finds the
most likely are the most likely there too.

Missing parts are made under `out/`: the packages (they are downloaded), the checkpoint
(nothing is).
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
from benchmarks.engine.peer_packages import OFFICIAL, ahead_of_others, package_folder
from testbed.agent_text import agent_monologue
from voiceagent_tts.core import FRAME_S

Precision = Literal["float32", "bfloat16"]

_SPEAKER, _LANGUAGE = "ryan", "English"
_WORDS = 22  # of a text that takes about ten seconds
_LONG_S = 10.0
_SHORT_FRAMES = 2
_OUT = Path("out")


@dataclass(frozen=True, slots=True)
class Contest:
    """Two sides that speak in turns.

    Attributes:
        name: for people.
        official: its precision.
        ours: our precision.
        layout: of our weights.
        target: the ratio that this is held to.
    """

    name: str
    official: Precision
    ours: Precision
    layout: Literal["plain", "packed"]
    target: float


@dataclass(frozen=True, slots=True)
class Speech:
    """One call, as the process that made it has measured it."""

    frames: int
    first_audio_s: float
    total_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Result:
    """What a contest has shown: milliseconds a frame, round by round."""

    contest: Contest
    official: list[float]
    ours: list[float]

    @property
    def frames_ratio(self) -> float:
        """Official over ours."""
        return statistics.median(self.official) / statistics.median(self.ours)


@dataclass(frozen=True, slots=True)
class Sides:
    """Starts the processes of both sides.

    Attributes:
        checkpoint: folder of a CustomVoice model.
        packages: folder of the official package.
        threads: of each process.
        text: what is spoken.
    """

    checkpoint: Path
    packages: Path
    threads: int
    text: str

    def official(self, precision: Precision) -> Child:
        """The official package."""
        argv = [
            "-m",
            "benchmarks.engine.official_speaker",
            str(self.checkpoint),
            precision,
            _SPEAKER,
        ]
        return self._child(argv, f"official-{precision}", **ahead_of_others(self.packages))

    def ours(self, precision: Precision, layout: str) -> Child:
        """Our engine's rows."""
        argv = [
            "-m",
            "benchmarks.engine.our_speaker",
            str(self.checkpoint),
            precision,
            layout,
            _SPEAKER,
        ]
        return self._child(argv, f"ours-{precision}-{layout}")

    def speak(self, child: Child, frames: int) -> Speech:
        """One call of either side."""
        return Speech(**child.ask(text=self.text, language=_LANGUAGE, frames=frames))

    def frame_ms(self, child: Child, frames: int) -> float:
        """What one more frame takes."""
        short, long = self.speak(child, _SHORT_FRAMES), self.speak(child, frames)
        return (long.total_s - short.total_s) / (long.frames - short.frames) * 1000

    def choices(self, child: Child, frames: int, codes: list[list[int]]) -> dict[str, Any]:
        """What our side would choose along `codes`, or along a speech of its own."""
        return child.ask(text=self.text, language=_LANGUAGE, frames=frames, codes=codes)

    def _child(self, argv: list[str], name: str, **environment: str) -> Child:
        environment["OMP_NUM_THREADS"] = str(self.threads)
        return Child([sys.executable, *argv], environment, _OUT / f"reference-{name}.log")


def hold(
    contest: Contest, sides: Sides, rounds: int, frames: int, tick: Callable[[], None]
) -> Result:
    """Let both sides speak in turns; who begins changes, so that no side always comes second."""
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
    """Seconds until there is sound of a text of ten seconds, and the most memory it took."""

    official: Speech
    ours: Speech


def compare_first_audio(contest: Contest, sides: Sides, tick: Callable[[], None]) -> FirstAudio:
    """Let both sides speak for ten seconds, once."""
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
    """The share of float32's most likely codes that are the most likely ones in `best` too."""
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
        Contest("packed", "float32", "float32", "packed", 1.3),
        Contest(f"best ({best})", "float32", best, "packed", 2.5),
        Contest(f"best ({best})", "bfloat16", best, "packed", 1.5),
    ]


def _table(results: list[Result]) -> Table:
    table = Table("comparison", "official", "ours", "ratio", "target")
    for result in results:
        contest = result.contest
        cells = [
            f"{precision}: {statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})"
            for precision, ms in (
                (contest.official, result.official),
                (contest.ours, result.ours),
            )
        ]
        table.add_row(contest.name, *cells, f"{result.frames_ratio:.2f}", f"{contest.target}")
    return table


def figures(results: list[Result], long: FirstAudio, agreement: float) -> dict[str, Any]:
    """The last line: what is official over what is ours, and what they are made of."""
    plain, packed, best, best_vs_bf16 = (round(result.frames_ratio, 2) for result in results)
    return {
        "frames_ratio_plain": plain,
        "frames_ratio_equal_precision": packed,
        "frames_ratio_best": best,
        "frames_ratio_best_vs_official_bf16": best_vs_bf16,
        "first_audio_ratio": round(long.official.first_audio_s / long.ours.first_audio_s, 1),
        "memory_ratio": round(long.official.peak_mb / long.ours.peak_mb, 2),
        "best": results[2].contest.ours,
        "best_top_1_agreement": round(agreement, 4),
        "official_ms_per_frame": round(statistics.median(results[1].official), 1),
        "official_bf16_ms_per_frame": round(statistics.median(results[3].official), 1),
        "plain_ms_per_frame": round(statistics.median(results[0].ours), 1),
        "packed_ms_per_frame": round(statistics.median(results[1].ours), 1),
        "best_ms_per_frame": round(statistics.median(results[2].ours), 1),
        "official_first_audio_s": round(long.official.first_audio_s, 2),
        "our_first_audio_s": round(long.ours.first_audio_s, 2),
        "official_peak_mb": round(long.official.peak_mb),
        "our_peak_mb": round(long.ours.peak_mb),
    }


def _prepared_checkpoint(folder: Path | None) -> Path:
    """The checkpoint that was named, or a random one, made where there is none yet."""
    if folder is not None:
        return folder.absolute()
    made = _OUT / "random-0.6b"
    if not (made / "speech_tokenizer" / "model.safetensors").exists():
        argv = ["-m", "testbed.checkpoint", "--out", str(made), "--size", "0.6b"]
        subprocess.run([sys.executable, *argv], check=True, stdout=sys.stderr)
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
    best: Annotated[Precision, typer.Option(help="Our fastest precision here.")] = "bfloat16",
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Speak the same text with the official package and with ours."""
    origin, console = provenance(), Console(stderr=True)
    threads = threads or len(os.sched_getaffinity(0))
    text = agent_monologue(seed=1, words=_WORDS)
    official = package_folder(OFFICIAL, packages)
    sides = Sides(_prepared_checkpoint(checkpoint), official, threads, text)
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
