"""Does Nari Labs' `tts_bench` measure what `voiceagent-tts bench` measures?

    python -m benchmarks.service.tts_bench --program PATH/TO/tts_bench/.venv/bin/bench

Both programs put the same load on one server at the same time, with the same requests, for each
target of `tts_bench` whose wire is that of OpenAI's `/v1/audio/speech`. `tts_bench` runs unmodified
(https://github.com/nari-labs/benchmarks); its audible onset is two windows of 20 ms above -45 dBFS,
ours the first sample above -40 dBFS. Latencies count from the planned start, of which `tts_bench`
keeps a record; its own report counts from the request's first byte.
"""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from voiceagent_tts.bench.own_server import own_server
from voiceagent_tts.bench.statistics import ratio
from voiceagent_tts.bench.texts import choose_texts
from voiceagent_tts.client import http_address
from voiceagent_tts.errors import EngineError

FIELDS: dict[str, dict[str, Any]] = {
    "vllm-omni": {"response_format": "pcm", "stream_format": "audio"},
    "sglang-omni": {"response_format": "pcm"},
    "voxserve": {"response_format": "pcm"},
    "mstar": {"response_format": "wav"},
}
"""Targets of `tts_bench`, and the fields that each adds to a request."""
_COMMON = {"language": "English", "non_streaming_mode": False}
_VOICE, _MODEL = "nova", "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
_WARM_UP_S = 2.0
_MS_PER_NS = 1e-6
MEASURES = ("first_byte_ms", "audible_ms", "e2e_ms")


def theirs_ms(records: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """The measures of `tts_bench`'s `requests.jsonl`, from the planned start.

    Raises:
        EngineError: a request of the measurement failed.
    """
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for record in records:
        if record["phase"] != "measurement":
            continue
        if not record["success"]:
            raise EngineError(f"tts_bench: a request failed: {record['error_message']}")
        playback, planned_ns = record["playback"], record["scheduled_elapsed_ns"]
        ends_ns = (
            playback["first_playable_elapsed_ns"],
            playback["first_audible_elapsed_ns"],
            record["completed_elapsed_ns"],
        )
        for name, at_ns in zip(MEASURES, ends_ns, strict=True):
            found[name].append((at_ns - planned_ns) * _MS_PER_NS)
    return found


def rows_of(
    target: str, theirs: dict[str, list[float]], ours: dict[str, list[float]]
) -> list[dict[str, Any]]:
    """Medians of both, and ours divided by theirs with its interval."""
    rows: list[dict[str, Any]] = []
    for name in MEASURES:
        quotient = ratio(theirs[name], ours[name], 50)
        assert quotient is not None, "latencies are positive"
        rows.append(
            {
                "target": target,
                "measure": name,
                "n": [len(theirs[name]), len(ours[name])],
                "tts_bench_p50_ms": round(_median(theirs[name]), 1),
                "ours_p50_ms": round(_median(ours[name]), 1),
                "ratio": round(quotient.value, 3),
                "ratio_interval": [round(quotient.low, 3), round(quotient.high, 3)],
            }
        )
    return rows


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2


async def _run(*argv: str, log: Path) -> None:
    """Run a program to its end.

    Raises:
        EngineError: it failed; its output is in `log`.
    """
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*argv, stdout=output, stderr=output)
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
    if status != 0:
        raise EngineError(f"expected {argv[0]} to succeed, got status {status}; see {log}")


async def _compare(
    target: str, program: Path, url: str, rate: float, seconds: float, folder: Path
) -> list[dict[str, Any]]:
    """Load the server with both programs at once."""
    fields = {"voice": _VOICE, "model": _MODEL, **_COMMON, **FIELDS[target]}
    theirs, ours = folder / target, folder / f"{target}.json"
    await asyncio.gather(
        _run(
            str(program), "run", "--target", target, "--base-url", url, "--voice", _VOICE,
            "--dataset", str(folder / "texts.jsonl"), "--rps", f"{rate:g}",
            "--warmup", f"{_WARM_UP_S:g}s", "--duration", f"{seconds:g}s",
            "--output", str(theirs), log=folder / f"{target}.tts_bench.txt",
        ),
        _run(
            sys.executable, "-m", "voiceagent_tts", "bench", "latency",
            "--target", f"{target}={url}{json.dumps(fields)}", "--together", "",
            "--rate", f"{rate:g}", "--warm-up-s", f"{_WARM_UP_S:g}", "--seconds", f"{seconds:g}",
            "--json", str(ours), log=folder / f"{target}.ours.txt",
        ),
    )  # fmt: skip
    records = map(json.loads, (theirs / "requests.jsonl").read_text("utf-8").splitlines())
    (section,) = json.loads(ours.read_text("utf-8"))["sections"]
    return rows_of(target, theirs_ms(records), section["values"])


async def compare_all(
    program: Path, rate: float, seconds: float, first_audio_s: float, folder: Path
) -> list[dict[str, Any]]:
    """Compare both on every target; texts and logs go to `folder`.

    Raises:
        EngineError: a program or a request failed.
    """
    folder.mkdir(parents=True, exist_ok=False)
    lines = [
        json.dumps({"id": f"text-{number}", "text": text.text})
        for number, text in enumerate(choose_texts(["en"], []))
    ]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    environment = {"VOICEAGENT_TTS_ENGINE": "espeak"}
    if first_audio_s:
        environment["VOICEAGENT_TTS_THROTTLE"] = json.dumps({"first_audio_s": first_audio_s})
    rows: list[dict[str, Any]] = []
    async with own_server(log=folder / "server.log", environment=environment) as server:
        url = http_address(server.url, "")
        for target in FIELDS:
            rows += await _compare(target, program, url, rate, seconds, folder)
    return rows


def main(
    program: Annotated[Path, typer.Option(help="The executable `bench` of tts_bench.")],
    rate: Annotated[float, typer.Option(help="Arrivals per second, of each program.")] = 2.0,
    seconds: Annotated[float, typer.Option(help="Duration for each target.")] = 30.0,
    first_audio_s: Annotated[
        float, typer.Option(help="Slow the first audio down by this, as a larger model would.")
    ] = 0.0,
    out: Annotated[Path, typer.Option(help="Folder for their files; a new one.")] = Path(
        "out/tts_bench"
    ),
) -> None:
    """Compare both programs, and print a table and one JSON object."""
    origin = provenance()
    rows = asyncio.run(compare_all(program, rate, seconds, first_audio_s, out))
    table = Table(title="p50 from the planned start, in ms", box=None)
    for heading in ("target", "measure", "n", "tts_bench", "ours", "ours ÷ theirs"):
        table.add_column(heading, justify="left" if heading in ("target", "measure") else "right")
    for row in rows:
        low, high = row["ratio_interval"]
        counts = " and ".join(map(str, row["n"]))
        quotient = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"
        medians = (f"{row[name]:.1f}" for name in ("tts_bench_p50_ms", "ours_p50_ms"))
        table.add_row(row["target"], row["measure"], counts, *medians, quotient)
    Console().print(table)
    publish({"kind": "tts_bench", **origin, "first_audio_s": first_audio_s, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
