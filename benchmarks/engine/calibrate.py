"""What do a card's launches, bytes and multiplications cost? Fitted to runs of `benchmarks.gpu`.

Writes the card's figures into the file that the simulator reads, beside the error of each pass:
least squares of the relative errors. The rates of the memory and of bfloat16 products are measured
by themselves (section `machine`); the fit finds microseconds of a launch, by kind of pass, and of a
gigaflop in the codec. Of several folders, a later one replaces what earlier ones measured.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.engine.pass_work import TABLE
from testbed.gpu_simulation import FIGURES, GpuTimes
from voiceagent_tts.checks.step_times import WINDOW_FRAMES
from voiceagent_tts.engine.codec_stream import split_windows
from voiceagent_tts.engine.sizes import fitting, graph_sizes

_MODEL, _KERNELS = "random-1.7b", "fused"
PASSES = ("one row", "many rows", "prefill")
"""Kinds of passes of talker and code predictor."""
_CODECS = ("plain", "fused")
_LAUNCHES = (*PASSES, *(f"codec, {codec}" for codec in _CODECS))
_PACKED = graph_sizes(288, 1024).talker.prompt_rows[-1]
"""Short prompts that share a prefill now."""
_LOADS = {
    "1/s": "1 request/s",
    "20/s": "20 requests/s",
    "60/s": "60 requests/s",
    "64 at once": "64 callers",
    "256 at once": "256 callers",
}
"""Loads of the simulator by those of a run."""

Seconds = Callable[[GpuTimes], float]
Measured = tuple[float, Seconds]
"""Milliseconds of something, and its seconds by the model."""
Sections = dict[str, dict[str, Any]]


def frame_s(times: GpuTimes, rows: int) -> float:
    """Seconds of a step of rows that all speak while the codec decodes whole windows of others."""
    codec_s, share = codec_step_s(times, rows), times.figures["beside_share"]
    return max(codec_s, _passes_s(times, rows) + share * codec_s)


def codec_step_s(times: GpuTimes, rows: int) -> float:
    """Seconds of the codec in such a step, on average."""
    sizes = graph_sizes(rows, 1024).codec
    calls = [
        frames * fitting(sizes[frames], len(windows))
        for number in range(WINDOW_FRAMES)
        for frames, windows in split_windows(
            dict.fromkeys(range(number, rows, WINDOW_FRAMES), WINDOW_FRAMES), [0] * rows, sizes
        )
    ]
    return sum(times.codec_s(frames) for frames in calls) / WINDOW_FRAMES


def measured_lines(sections: Sections) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield (kernels of the codec, figures of a section, one of its lines) of the served model."""
    for name, section in sections.items():
        figures = section.get("figures") or {}
        if figures.get("model") == _MODEL and figures["kernels"] == _KERNELS:
            first_runs = "fused" if name == "fused-codec" else "plain"
            for line in figures["lines"].values():
                yield figures.get("codec_kernels", first_runs), figures, line


def _measured(sections: Sections, packs_prompts: bool) -> Iterator[tuple[str, float, Seconds]]:
    """Yield (name, measured milliseconds, seconds by the model) of all that a run has timed."""
    parts = sections.get("profile-1.7b", {}).get("figures", {}).get("parts", {})
    for name, part in parts.items():
        kind, _, rows = name.removesuffix(" rows").partition(", ")
        if kind == "code predictor":
            yield name, part["ms"], lambda times, rows=int(rows): times.predictor_s(rows)
        elif kind == "talker":
            yield name, part["ms"], lambda times, rows=int(rows): times.talker_s(rows)
    for codec, figures, line in measured_lines(sections):
        yield from _of_line(codec, line, packs_prompts)
        if line["rows"] == 1:
            first_ms = figures["first_audio"]["cold_first_frame_p50_ms"]
            yield "first sound", first_ms, lambda times: times.prefill_s(1) + _passes_s(times, 1)


def _of_line(
    codec: str, line: dict[str, Any], packs_prompts: bool
) -> Iterator[tuple[str, float, Seconds]]:
    rows = line["rows"]
    name = f"codec, {codec}, beside {rows} rows"
    yield name, line["codec_ms"], lambda times: codec_step_s(replace(times, codec=codec), rows)
    if rows == 1:  # too little to slow the passes beside it
        yield "code predictor, 1 rows", line["predictor_ms"], lambda times: times.predictor_s(1)
        yield "talker, 1 rows", line["talker_ms"], lambda times: times.talker_s(1)
    elif "ms_without_codec" in line:
        name = f"step without codec, {rows} rows"
        yield name, line["ms_without_codec"], lambda times: _passes_s(times, rows)
    if rows == 64 and packs_prompts:  # the prompts of these lines have 200 positions
        yield "prefill of 2 x 256", 2 * line["prefill_ms"], lambda times: times.long_prefill_s()


def _passes_s(times: GpuTimes, rows: int) -> float:
    return times.predictor_s(rows) + times.talker_s(rows)


def fit(measured: dict[str, Measured], times: GpuTimes) -> GpuTimes:
    """Return times with the unknown figures that leave the least relative errors.

    Every time is a sum in which each unknown has a factor; what it is shows with the others at 0.
    """
    unknown = len(_LAUNCHES) + len(_CODECS)

    def modelled_ms(values: Sequence[float]) -> np.ndarray:
        at = _with(times, values)
        return np.array([1000 * seconds(at) for _, seconds in measured.values()])

    took_ms = np.array([ms for ms, _ in measured.values()])
    known_ms = modelled_ms([0.0] * unknown)
    ones = np.eye(unknown).tolist()
    factors = np.array([modelled_ms(one) - known_ms for one in ones]) / took_ms
    found, *_ = np.linalg.lstsq(factors.T, 1 - known_ms / took_ms, rcond=None)
    return _with(times, [round(float(one), 3) for one in found])


def _with(times: GpuTimes, values: Sequence[float]) -> GpuTimes:
    launches, products = values[: len(_LAUNCHES)], values[len(_LAUNCHES) :]
    found = {
        "launch_us": dict(zip(_LAUNCHES, launches, strict=True)),
        "codec_us_per_gigaflop": dict(zip(_CODECS, products, strict=True)),
    }
    return replace(times, figures=times.figures | found)


def beside_share(sections: Sections, times: GpuTimes) -> float:
    """Return by how much the passes take longer for a second of the codec beside them."""
    slowed, beside = [], []
    for _, _, line in measured_lines(sections):
        if line["rows"] > 1:
            took_ms = line["predictor_ms"] + line["talker_ms"]
            slowed.append(took_ms - 1000 * _passes_s(times, line["rows"]))
            beside.append(min(line["codec_ms"], took_ms))
    return round(float(np.dot(slowed, beside) / np.dot(beside, beside)), 3)


def errors(measured: dict[str, Measured], times: GpuTimes) -> dict[str, float]:
    """Return the relative error of every measured time, by its name."""
    return {
        name: round(1000 * seconds(times) / ms - 1, 3) for name, (ms, seconds) in measured.items()
    }


def frames_of(sections: Sections) -> dict[str, Measured]:
    """Return the measured steps with the codec beside them, by name."""
    return {
        f"step, {line['rows']} rows, {codec} codec": (
            line["ms_per_frame"],
            lambda times, rows=line["rows"], codec=codec: frame_s(
                replace(times, codec=codec), rows
            ),
        )
        for codec, _, line in measured_lines(sections)
    }


def _served(sections: Sections) -> dict[str, dict[str, float]]:
    """Return what listeners of a server got at the simulator's loads."""
    loads = sections["load-1.7b"]["figures"]["sections"]
    names = ("audible_p50_ms", "audible_p95_ms", "audio_s_per_s")
    return {_LOADS[load]: {name: found[name] for name in names} for load, found in loads.items()}


def _server_ms(sections: Sections) -> float:
    """Return the milliseconds that a server's thread takes for a second of audio.

    The least of all loads: of its processor, or of the clock in a run that did not count that,
    whose server was the limit under the highest load.
    """
    loads = sections["load-1.7b"]["figures"]["sections"].values()
    seconds = (load.get("server_cpu_s", load["seconds"]) / load["seconds"] for load in loads)
    return round(
        min(1000 * one / load["audio_s_per_s"] for one, load in zip(seconds, loads, strict=True)), 2
    )


def _host(folder: Path) -> dict[str, list[float]] | None:
    """Return the host's part of a step by its number of rows, if the folder has it."""
    if not (path := folder / "host.txt").exists():
        return None
    lines = re.findall(r"(\d+) engine\.step host .*? median ([\d.]+)", path.read_text())
    return {"rows": [int(rows) for rows, _ in lines], "ms": [float(ms) for _, ms in lines]}


def sections_of(folder: Path) -> Sections:
    """Read the sections of a run."""
    return json.loads((folder / "results.json").read_text())["sections"]


def measured_times(runs: Sequence[Sections], prompts: int = _PACKED) -> dict[str, Measured]:
    """Return all that the runs have timed, by name, from the last run that has it."""
    packs = prompts == _PACKED
    return {name: (ms, of) for run in runs for name, ms, of in _measured(run, packs)}


def calibrate(
    folders: Sequence[Path], commit: str, codec: str = "fused", prompts: int = _PACKED
) -> dict[str, Any]:
    """Return the figures of a card from the results in these folders, older ones first."""
    runs = [sections_of(folder) for folder in folders]
    machine = next(run["machine"]["figures"] for run in runs if "machine" in run)
    measured = measured_times(runs, prompts)
    card: dict[str, Any] = {
        "is_measured": True,
        "results": [folder.name for folder in folders],
        "commit": commit,
        "codec": codec,
        "prompts_a_pass": prompts,
        "terabytes_per_s": machine["copy_tb_per_s"],
        "teraflop_per_s": machine["tflop_per_s"],
    }
    times = fit(measured, GpuTimes(json.loads(TABLE.read_text()), card, codec))
    card = times.figures | {"beside_share": beside_share(runs[-1], times)}
    for name in ("launch_us", "codec_us_per_gigaflop"):  # 0: no run has it
        card[name] = {kind: found for kind, found in card[name].items() if found}
    times = replace(times, figures=card)
    card["errors"] = errors(measured | frames_of(runs[-1]), times)
    card["server_ms_per_audio_s"] = _server_ms(runs[-1])
    card["served"] = _served(runs[-1])
    card["engine_audio_s_per_s"] = {
        f"{line['rows']} rows, {kind} codec": line["audio_s_per_s"]
        for kind, _, line in measured_lines(runs[-1])
    }
    return card


def main(
    card: Annotated[str, typer.Argument(help="Name of the card in the file of figures.")],
    commit: Annotated[str, typer.Argument(help="That the last of the runs measured.")],
    folders: Annotated[list[Path], typer.Argument(help="Results of runs, older ones first.")],
    codec: Annotated[str, typer.Option(help="Kernels of the codec of the served load.")] = "fused",
    prompts: Annotated[int, typer.Option(help="That share a prefill at it.")] = _PACKED,
) -> None:
    """Fit a card's figures to results of `python -m benchmarks.gpu`."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"cards": {}}
    figures["cards"][card] = found = calibrate(folders, commit, codec, prompts)
    for folder in folders:
        figures |= {"host": host} if (host := _host(folder)) else {}
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    typer.run(main)
