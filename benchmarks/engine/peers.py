"""How soon is there sound, and how fast does it go on, beside other ways to run the same model?

The official qwen-tts and faster-qwen3-tts, each with the packages that its authors name, and our
engine's rows speak the same text from the same CustomVoice checkpoint on the same device, one after
the other, each in its own process, one text at a time. Of each: the median time to the first sound
and the frames per second of a text that goes on (a long call less a short one, so that the prompt
counts for nobody). faster-qwen3-tts gives its sound in chunks, so that both figures depend on their
size: it is measured at one frame, its soonest, and at eight, which its authors publish, and held
against us at its better one. The official package gives all its sound at the end.

Without `--checkpoint` the weights are random, of a published size. Packages are downloaded to
`out/peers/`, or taken from a folder of wheels. Who cannot run here has a line that says why.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.answering import Child
from benchmarks.engine.bench import random_model
from benchmarks.engine.card import device_name
from benchmarks.engine.peer_packages import FASTER, OFFICIAL, Peer, ahead_of_others, package_folder
from testbed.agent_text import agent_monologue

_OUT = Path("out")
_SPEAKER, _LANGUAGE = "ryan", "English"
_WORDS = 22  # of a text that takes about ten seconds
_WARM_UP_FRAMES = 30
_SOONEST, _PUBLISHED_CHUNK, _OUR_CHUNK = 1, 8, 12


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared.

    Attributes:
        name: for people.
        module: of `benchmarks`, which a child runs.
        arguments: of the module, after the checkpoint and the precision.
        chunks: sizes in frames that its sound comes in; none where it comes at the end.
        peer: whose packages it needs; None for ours.
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
        name: of the side.
        first_audio_ms: the soonest median.
        frames_per_s: the highest median.
        by_chunk: both, for each size of chunks.
        skipped: why there is nothing.
    """

    name: str
    first_audio_ms: float | None = None
    frames_per_s: float | None = None
    by_chunk: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    skipped: str = ""

    def figures(self) -> dict[str, Any]:
        """Under their names in the JSON object."""
        if self.skipped:
            return {"skipped": self.skipped}
        return {
            "first_audio_ms": self.first_audio_ms,
            "frames_per_s": self.frames_per_s,
            "by_chunk": self.by_chunk,
        }


@dataclass(frozen=True, slots=True)
class Contest:
    """What all sides speak, and how.

    Attributes:
        checkpoint: folder of a CustomVoice model.
        precision: of its talker and code predictor.
        frames: of the long call.
        rounds: calls of each kind.
        packages: folder of the peers' packages.
        wheels: where they are installed from; downloaded without it.
    """

    checkpoint: Path
    precision: str
    frames: int
    rounds: int
    packages: Path
    wheels: Path | None

    def measure(self, side: Side) -> Standing:
        """Let a side speak; one that cannot has a standing that says why."""
        try:
            environment = self._environment(side)
        except subprocess.CalledProcessError:
            return Standing(side.name, skipped="its packages could not be installed")
        log = _OUT / f"peers-{side.name}.log"
        arguments = (str(self.checkpoint), self.precision, *side.arguments)
        argv = [sys.executable, "-m", f"benchmarks.engine.{side.module}", *arguments]
        try:
            with Child(argv, environment, log) as child:
                by_chunk = {
                    str(chunk or "all"): self._figures(child, chunk)
                    for chunk in side.chunks or (None,)
                }
        except ChildProcessError:
            return Standing(side.name, skipped=_last_line(log))
        return Standing(
            side.name,
            min(figures["first_audio_ms"] for figures in by_chunk.values()),
            max(figures["frames_per_s"] for figures in by_chunk.values()),
            by_chunk,
        )

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
    return lines[-1] if lines else "it ended without a word"


def sides_on(device: str) -> tuple[Side, ...]:
    """All that are compared on a device; ours is the last."""
    return (
        Side("official", "official_speaker", (_SPEAKER, device), peer=OFFICIAL),
        Side("faster", "faster_speaker", (_SPEAKER, device), (_SOONEST, _PUBLISHED_CHUNK), FASTER),
        Side("ours", "our_speaker", ("packed", _SPEAKER, device), (_OUR_CHUNK,)),
    )


def figures_of(standings: Iterable[Standing]) -> dict[str, Any]:
    """Every side's figures, and theirs against ours: above 1 we are ahead."""
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


def table_of(figures: dict[str, Any], names: Iterable[str]) -> Table:
    """The figures for people."""
    table = Table("side", "chunk", "first audio", "frames a second", title="One text at a time")
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
    folder = (checkpoint or random_model(size, device)).absolute()
    contest = Contest(folder, precision, frames, rounds, packages, wheels)
    standings = list[Standing]()
    for side in sides_on(device):
        with console.status(f"{side.name} speaks"):
            standings.append(contest.measure(side))
    figures = figures_of(standings)
    console.print(table_of(figures, [standing.name for standing in standings]))
    described = {"model": folder.name, "device": device_name(torch.device(device))}
    settings = {"precision": precision, "frames": frames, "rounds": rounds}
    publish({**described, **figures, **settings, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
