"""What would listeners get on a GPU that is not here? A prediction, never a measurement.

The real scheduler is simulated at five loads. Passes take what their launches and bytes take, by
the counted table of `benchmarks.engine.launches` and one file of figures of a device, which are
guesses until a card has been measured. So the predictions compare two versions of this software; a
test notices when a change makes them worse.
"""

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.pass_work import TABLE
from testbed.gpu_simulation import SCENARIOS, GpuTimes, load_times

SAVED = Path(__file__).parent / "predictions.json"
"""Predictions, as this program wrote them with `--save`."""
_ROWS = (1, 20, 64, 256)


def predict(times: GpuTimes) -> dict[str, dict[str, float]]:
    """Return what listeners get at every load, and the step times without the codec."""
    found = {name: asdict(make(times).predict()) for name, make in SCENARIOS.items()}
    found["step_s"] = {str(rows): times.step_s(rows) for rows in _ROWS}
    found["codec_call_s"] = {str(frames): times.codec_s(frames) for frames in _ROWS}
    return found


def main(
    codec: Annotated[str, typer.Option(help="Kernels of the codec: plain or fused.")] = "plain",
    json: Annotated[Path | None, typer.Option(help="Also write the predictions here.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Also replace the predictions that tests compare with.")
    ] = False,
) -> None:
    """Predict audible first audio, gaps and throughput."""
    times = load_times(TABLE, codec)
    found = predict(times)
    kind = "measured figures" if times.figures["is_measured"] else "guessed figures"
    table = Table("load", "p50 ms", "p95 ms", "gaps", "audio-s/s", title=f"Predicted from {kind}")
    for name in SCENARIOS:
        of = found[name]
        waits = [f"{1000 * of[f'audible_{share}_s']:.1f}" for share in ("p50", "p95")]
        table.add_row(name, *waits, str(of["gaps"]), f"{of['audio_s_per_s']:.0f}")
    Console().print(table)
    if save and codec == "plain":  # what a server runs by default
        SAVED.write_text(json_format.dumps(found, indent=2) + "\n")
    publish(
        {"is_measured": False, "codec_kernels": codec, "predicted": found, **provenance()}, json
    )


if __name__ == "__main__":
    typer.run(main)
