"""What would listeners get on a GPU that is not here? A prediction, never a measurement.

The real scheduler is simulated at five loads, each with three schedules. Passes take what their
launches and bytes take, by the counted table of `benchmarks.engine.launches` and one file of
figures of a device, which are guesses until a card has been measured. So the predictions compare
two versions of this software; a test notices when a change makes them worse. `--before COMMIT` also
predicts with the launches and bytes that were counted at a commit.
"""

import json as json_format
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.pass_work import TABLE
from testbed.gpu_simulation import SCENARIOS, GpuTimes, load_times, predict_load

SAVED = Path(__file__).parent / "predictions.json"
"""Predictions, as this program wrote them with `--save`."""
_ROWS = (1, 20, 64, 256)


def predict(times: GpuTimes) -> dict[str, dict[str, float]]:
    """Return what listeners get at every load, and the step times without the codec."""
    found = {name: asdict(predict_load(name, times)) for name in SCENARIOS}
    found["step_s"] = {str(rows): times.step_s(rows) for rows in _ROWS}
    found["codec_call_s"] = {str(frames): times.codec_s(frames) for frames in _ROWS}
    return found


def main(
    codec: Annotated[str, typer.Option(help="Kernels of the codec: plain or fused.")] = "fused",
    before: Annotated[
        str | None, typer.Option(help="Also predict with what was counted at this commit.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the predictions here.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Also replace the predictions that tests compare with.")
    ] = False,
) -> None:
    """Predict audible first audio, gaps and throughput."""
    times = load_times(TABLE, codec)
    found = predict(times)
    kind = "measured figures" if times.figures["is_measured"] else "guessed figures"
    columns = {"now": found}
    if before is not None:
        columns = {before: predict(_times_at(before, codec)), **columns}
    if codec == "fused":
        columns["plain codec"] = predict(load_times(TABLE, "plain"))
    Console().print(_compared(columns, f"Predicted from {kind}; steps without the codec"))
    if save and codec == "fused":  # what a server runs by default
        SAVED.write_text(json_format.dumps(found, indent=2) + "\n")
    publish(
        {"is_measured": False, "codec_kernels": codec, "predicted": found, **provenance()}, json
    )


def _times_at(commit: str, codec: str) -> GpuTimes:
    """Return the times of passes as they were counted at a commit.

    Raises:
        typer.BadParameter: there is no such commit, or it has no table of passes.
    """
    path = TABLE.relative_to(Path(__file__).parents[2])
    command = ["git", "show", f"{commit}:{path.as_posix()}"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=TABLE.parent)
    if told.returncode:
        raise typer.BadParameter(f"expected a commit with {path}, got {commit}; try HEAD")
    return replace(load_times(TABLE, codec), table=json_format.loads(told.stdout))


def _compared(columns: dict[str, dict[str, dict[str, float]]], title: str) -> Table:
    """Return a table with a column for each version, and what listeners get in its lines."""
    table = Table("", *columns, title=title)
    for rows in _ROWS:
        steps = [1000 * of["step_s"][str(rows)] for of in columns.values()]
        table.add_row(f"step of {rows} rows, ms", *(f"{one:.1f}" for one in steps))
    for name in SCENARIOS:
        loads = [of[name] for of in columns.values()]
        waits = [[1e3 * of[f"audible_{share}_s"] for share in ("p50", "p95")] for of in loads]
        table.add_row(f"{name}, p50 / p95 ms", *(f"{p50:.1f} / {p95:.1f}" for p50, p95 in waits))
        table.add_row(f"{name}, gaps", *(str(of["gaps"]) for of in loads))
        table.add_row(f"{name}, audio-s/s", *(f"{of['audio_s_per_s']:.0f}" for of in loads))
    return table


if __name__ == "__main__":
    typer.run(main)
