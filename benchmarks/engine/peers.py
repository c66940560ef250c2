"""How soon does audio start, and how fast does it continue, beside other runtimes of this model?

The official qwen-tts and faster-qwen3-tts, each with the packages that its authors name, and our
engine's rows speak one text from one CustomVoice checkpoint on one device, one after the other,
each in its own process, one text at a time. Of each are measured the median time to the first audio
and the frames per second of a long text (a long call less a short one, so that the prompt does not
count). The first audio of every runtime is the frame of silence that the model starts with.

faster-qwen3-tts returns audio in chunks, and both figures depend on their size: it is measured at
one frame, its soonest, at eight, which its authors publish, at twelve, its default, and at 25. The
ratios use its best figure of each kind. The official package returns all audio at the end. Figures
that others publish are of other cards: compare only what was measured on one.

Without `--checkpoint` the weights are random, of a published size. Packages are downloaded to
`out/peers/`, or installed from a folder of wheels. A side that cannot run has a line that says why.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.answering import Child
from benchmarks.engine.card import device_name
from benchmarks.engine.peer_packages import FASTER, OFFICIAL, Peer, ahead_of_others, package_folder
from testbed.agent_text import agent_monologue
from testbed.checkpoint import ready_checkpoint
from testbed.published import CODEC, SIZES, model_config

_OUT = Path("out")
_SPEAKER, _LANGUAGE = "ryan", "English"
_WORDS = 22  # of a text that takes about ten seconds
_WARM_UP_FRAMES = 30
_FASTER_CHUNKS = (1, 8, 12, 25)
"""Its soonest, the one that its authors publish, its default, and two seconds."""
_OUR_CHUNK = 12


@dataclass(frozen=True, slots=True)
class Side:
    """A runtime that is compared.

    Attributes:
        name: name in reports.
        module: module of `benchmarks.engine` that a child process runs.
        arguments: arguments of the module, after the checkpoint and the precision.
        chunks: sizes of the chunks of its audio, in frames; none if audio comes at the end.
        peer: packages that it needs; None for ours.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    chunks: tuple[int, ...] = ()
    peer: Peer | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What was measured of a side.

    Attributes:
        name: name of the side.
        first_audio_ms: the soonest median of all chunk sizes.
        frames_per_s: the highest median of all chunk sizes.
        by_chunk: both figures of each chunk size.
        skipped: reason why there are no figures.
    """

    name: str
    first_audio_ms: float | None = None
    frames_per_s: float | None = None
    by_chunk: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    skipped: str = ""

    def figures(self) -> dict[str, Any]:
        """Return the figures under their names in the JSON object."""
        if self.skipped:
            return {"skipped": self.skipped}
        return {
            "first_audio_ms": self.first_audio_ms,
            "frames_per_s": self.frames_per_s,
            "by_chunk": self.by_chunk,
        }


@dataclass(frozen=True, slots=True)
class Contest:
    """What all sides generate, and how.

    Attributes:
        checkpoint: folder of a CustomVoice model.
        precision: of its talker and code predictor.
        frames: frames of the long call.
        rounds: number of calls of each kind.
        packages: folder of the peers' packages.
        wheels: folder to install them from; None to download them.
    """

    checkpoint: Path
    precision: str
    frames: int
    rounds: int
    packages: Path
    wheels: Path | None

    def measure(
        self,
        side: Side,
        known: Mapping[str, dict[str, float]] | None = None,
        note: Callable[[str, dict[str, float]], None] = lambda chunk, figures: None,
    ) -> Standing:
        """Measure a side; one that cannot run has a standing that says why.

        Args:
            side: what to measure.
            known: chunk -> figures that were measured before.
            note: called with a chunk and its figures, as soon as they are measured.
        """
        by_chunk = dict(known or {})
        chunks = {str(chunk or "all"): chunk for chunk in side.chunks or (None,)}
        missing = {name: chunk for name, chunk in chunks.items() if name not in by_chunk}
        skipped = self._measure_chunks(side, missing, by_chunk, note) if missing else ""
        if not by_chunk:
            return Standing(side.name, skipped=skipped)
        return Standing(
            side.name,
            min(figures["first_audio_ms"] for figures in by_chunk.values()),
            max(figures["frames_per_s"] for figures in by_chunk.values()),
            by_chunk,
        )

    def _measure_chunks(
        self,
        side: Side,
        chunks: Mapping[str, int | None],
        by_chunk: dict[str, dict[str, float]],
        note: Callable[[str, dict[str, float]], None],
    ) -> str:
        """Add the figures of chunks; returns why some are missing, or nothing."""
        try:
            environment = self._environment(side)
        except subprocess.CalledProcessError:
            return "its packages could not be installed"
        log = _OUT / f"peers-{side.name}.log"
        arguments = (str(self.checkpoint), self.precision, *side.arguments)
        argv = [sys.executable, "-m", f"benchmarks.engine.{side.module}", *arguments]
        try:
            with Child(argv, environment, log) as child:
                for name, chunk in chunks.items():
                    by_chunk[name] = self._figures(child, chunk)
                    note(name, by_chunk[name])
        except ChildProcessError:
            sys.stderr.write(log.read_text(errors="replace"))
            return _last_line(log)
        return ""

    def _environment(self, side: Side) -> dict[str, str]:
        if side.peer is None:
            return {}
        return ahead_of_others(package_folder(side.peer, self.packages, self.wheels))

    def _figures(self, child: Child, chunk: int | None) -> dict[str, float]:
        self._speak(child, max(_WARM_UP_FRAMES, self.frames // 2), chunk)
        short, long = self.frames // 4, self.frames
        firsts, rates = list[float](), list[float]()
        for _ in range(self.rounds):
            brief, full = (self._speak(child, frames, chunk) for frames in (short, long))
            firsts.append(full["first_audio_s"] * 1000)
            rates.append((full["frames"] - brief["frames"]) / (full["total_s"] - brief["total_s"]))
        return {
            "first_audio_ms": round(statistics.median(firsts), 2),
            "frames_per_s": round(statistics.median(rates), 2),
        }

    def _speak(self, child: Child, frames: int, chunk: int | None) -> dict[str, Any]:
        text = agent_monologue(seed=1, words=_WORDS)
        chunked = {} if chunk is None else {"chunk_frames": chunk}
        return child.ask(text=text, language=_LANGUAGE, frames=frames, **chunked)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without any output"


def sides_on(device: str) -> tuple[Side, ...]:
    """Return the sides that are compared on a device; ours is the last."""
    return (
        Side("official", "official_speaker", (_SPEAKER, device), peer=OFFICIAL),
        Side("faster", "faster_speaker", (_SPEAKER, device), _FASTER_CHUNKS, FASTER),
        Side("ours", "our_speaker", ("packed", _SPEAKER, device), (_OUR_CHUNK,)),
    )


def figures_of(standings: Iterable[Standing]) -> dict[str, Any]:
    """Return every side's figures, and ratios that are above 1 where ours are better."""
    by_name = {standing.name: standing for standing in standings}
    ours = by_name["ours"]
    figures: dict[str, Any] = {name: one.figures() for name, one in by_name.items()}
    for name, other in by_name.items():
        if name == "ours" or other.skipped or ours.skipped:
            continue
        assert other.first_audio_ms and other.frames_per_s
        assert ours.first_audio_ms and ours.frames_per_s
        figures[f"first_audio_ratio_{name}"] = round(other.first_audio_ms / ours.first_audio_ms, 2)
        figures[f"frames_ratio_{name}"] = round(ours.frames_per_s / other.frames_per_s, 2)
    return figures


def table_of(figures: dict[str, Any], names: Iterable[str], card: str = "") -> Table:
    """Return the figures as a table under the name of the card that they were measured on."""
    title = f"One text at a time, on {card}" if card else "One text at a time"
    table = Table("side", "chunk", "first audio", "frames a second", title=title)
    for name in names:
        if "skipped" in figures[name]:
            table.add_row(name, "", "", figures[name]["skipped"])
            continue
        for chunk, found in figures[name]["by_chunk"].items():
            table.add_row(name, chunk, f"{found['first_audio_ms']} ms", f"{found['frames_per_s']}")
    return table


def main(
    checkpoint: Annotated[Path | None, typer.Option(help="A CustomVoice model.")] = None,
    size: Annotated[Literal["0.6b", "1.7b"], typer.Option(help="Without --checkpoint.")] = "0.6b",
    device: Annotated[str | None, typer.Option(help="A GPU where there is one.")] = None,
    precision: Annotated[str, typer.Option()] = "bfloat16",
    frames: Annotated[int, typer.Option(min=8, help="Of a long call.")] = 96,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    packages: Annotated[Path, typer.Option(help="Where the peers' folders go.")] = _OUT / "peers",
    wheels: Annotated[Path | None, typer.Option(help="A folder to install them from.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """Compare peers on this machine."""
    origin, console = provenance(), Console(stderr=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = checkpoint
    if folder is None:
        config = model_config(SIZES[size], "custom_voice")
        folder = ready_checkpoint(_OUT / f"random-{size}", config, CODEC, device=device)
    folder = folder.absolute()
    contest = Contest(folder, precision, frames, rounds, packages, wheels)
    standings = list[Standing]()
    for side in sides_on(device):
        with console.status(f"{side.name} speaks"):
            standings.append(contest.measure(side))
    figures = figures_of(standings)
    card = device_name(torch.device(device))
    console.print(table_of(figures, [standing.name for standing in standings], card))
    described = {"model": folder.name, "device": card}
    settings = {"precision": precision, "frames": frames, "rounds": rounds}
    publish({**described, **figures, **settings, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
