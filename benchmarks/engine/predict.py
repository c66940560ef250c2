"""What would listeners get on a GPU that is not here? A prediction, beside what a run measured.

The real scheduler is simulated at five loads, each with three schedules, on every card of the
simulator's file of figures (`benchmarks.engine.calibrate` writes it). Passes take what their
launches, bytes and multiplications take, by the counted table of `benchmarks.engine.launches`. Each
load is predicted for an engine alone, and through a server, which sends all audio from one thread.
A test notices when a change makes predictions worse. `--before COMMIT` also predicts with what was
counted at a commit, and with what launches took in a run of it.
"""

import json as json_format
import math
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.calibrate import PASSES, frame_s
from benchmarks.engine.pass_work import TABLE
from testbed.gpu_simulation import FIGURES, SCENARIOS, GpuTimes, load_times, predict_load
from voiceagent_tts.core import FRAME_S

SAVED = Path(__file__).parent / "predictions.json"
"""Predictions, as this program wrote them with `--save`."""
CARD = "H200"
"""Card of the predictions that tests compare with."""
_ROWS = (1, 20, 64, 256)

Found = dict[str, dict[str, float]]


def predict(times: GpuTimes) -> Found:
    """Return what listeners get at every load, and the step times without the codec."""
    found = {name: asdict(predict_load(name, times)) for name in SCENARIOS}
    found["step_s"] = {str(rows): times.step_s(rows) for rows in _ROWS}
    found["codec_call_s"] = {str(frames): times.codec_s(frames) for frames in _ROWS}
    return found


def main(
    cards: Annotated[
        list[str] | None, typer.Option("--card", help="Of the file of figures; default: all.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="plain or fused. Default: what the card's run served with.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Also predict with what was counted at this commit.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the predictions here.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Also replace the predictions that tests compare with.")
    ] = False,
) -> None:
    """Predict audible first audio, gaps and throughput."""
    predicted = dict[str, dict[str, Found]]()
    for card in cards or json_format.loads(FIGURES.read_text())["cards"]:
        times = load_times(TABLE, card, codec)
        columns = {} if before is None else {before: predict(_at(before, times))}
        columns |= {
            "engine": predict(times),
            "through a server": predict(replace(times, has_server=True)),
        }
        Console().print(_compared(columns, times, f"{card}, {times.codec} codec"))
        predicted[card] = columns
    if save:
        found = predict(load_times(TABLE, CARD))
        SAVED.write_text(json_format.dumps(found, indent=2) + "\n")
    publish({"is_measured": False, "predicted": predicted, **provenance()}, json)


def _at(commit: str, times: GpuTimes) -> GpuTimes:
    """Return times with passes as they were counted at a commit, as far as they were.

    Where a run measured that commit on any card, launches take what they took there, as many
    prompts share a pass, and the codec has the kernels with which it served.

    Raises:
        typer.BadParameter: there is no such commit, or it has no table of passes.
    """
    path = TABLE.relative_to(Path(__file__).parents[2])
    command = ["git", "show", f"{commit}:{path.as_posix()}"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=TABLE.parent)
    if told.returncode:
        raise typer.BadParameter(f"expected a commit with {path}, got {commit}; try HEAD")
    counted = json_format.loads(told.stdout)
    table = {name: now | counted.get(name, {}) for name, now in times.table.items()}
    cards = json_format.loads(FIGURES.read_text())["cards"].values()
    run = next((of for of in cards if of["commit"] == commit), None)
    if run is None:
        return replace(times, table=table)
    launch_us = times.figures["launch_us"]
    launch_us = launch_us | {kind: run["launch_us"][kind] for kind in PASSES}
    figures = {"launch_us": launch_us, "prompts_a_pass": run["prompts_a_pass"]}
    return GpuTimes(table, times.figures | figures, run["codec"])


def _compared(columns: dict[str, Found], times: GpuTimes, title: str) -> Table:
    """Return a table with what listeners get in its lines, and what was measured on its right."""
    served_with = f"measured through a server, {times.figures['codec']} codec"
    table = Table("", *columns, served_with, title=title)
    for rows in _ROWS:
        steps = [1000 * of["step_s"][str(rows)] for of in columns.values()]
        table.add_row(f"step of {rows} rows without codec, ms", *(f"{one:.1f}" for one in steps))
    for rows in (1, 64, 256):
        name, made = f"{rows} rows, {times.codec} codec", rows * FRAME_S / frame_s(times, rows)
        measured = times.figures["engine_audio_s_per_s"].get(name, math.nan)
        told = f"{made:.0f} (measured: {measured:.0f})"
        table.add_row(f"{rows} rows all the time, audio-s/s", *[""] * (len(columns) - 2), told)
    for name in SCENARIOS:
        loads = [of[name] for of in columns.values()]
        served = times.figures["served"][name]
        waits = [[1e3 * of[f"audible_{share}_s"] for share in ("p50", "p95")] for of in loads]
        waits.append([served[f"audible_{share}_ms"] for share in ("p50", "p95")])
        table.add_row(f"{name}, p50 / p95 ms", *(f"{p50:.1f} / {p95:.1f}" for p50, p95 in waits))
        table.add_row(f"{name}, gaps", *(str(of["gaps"]) for of in loads))
        speeds = [of["audio_s_per_s"] for of in (*loads, served)]
        table.add_row(f"{name}, audio-s/s", *(f"{speed:.0f}" for speed in speeds))
    return table


if __name__ == "__main__":
    typer.run(main)
