"""Does Nari Labs' `tts_bench` measure what `voiceagent-tts bench` measures?

    python -m benchmarks.service.tts_bench --program PATH/TO/tts_bench/.venv/bin/bench

Both programs put the same load on one server at the same time, with the same texts, for each target
of `tts_bench` whose wire is that of OpenAI's `/v1/audio/speech`. `tts_bench` runs unmodified
(https://github.com/nari-labs/benchmarks); its audible onset is two windows of 20 ms above -45 dBFS,
ours the first sample above -40 dBFS. Latencies count from the planned start, of which `tts_bench`
keeps a record; its own report counts from the request's first byte.

Each program has arrivals of its own, so a moment at which the machine stands still hits other
requests of each. Therefore the targets are measured in rounds, each round in another order and with
other arrivals, and the medians are those of all rounds; the first round, in which the server is
cold, does not count. Intervals draw whole rounds again, and then requests in them: what slows the
machine for a while slows both programs in the same round.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from testbed.throttled import VARIABLE
from voiceagent_tts.bench.document import read_document
from voiceagent_tts.bench.own_server import own_server
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
_WARM_UP_S = 5.0
"""Longer than a program takes to start: each measures only while the other puts its load."""
_AGREEMENT = 0.1
_DRAWS = 1_000
_MS_PER_NS = 1e-6
MEASURES = ("first_byte_ms", "audible_ms", "e2e_ms")
Values = dict[str, list[float]]
"""The values of each measure in one round."""


def theirs_ms(records: Iterable[dict[str, Any]]) -> Values:
    """The measures of `tts_bench`'s `requests.jsonl`, from the planned start.

    It calls a request whose audio stalled no success; what has arrived whole is measured here, as
    ours counts a stall as an underrun.

    Raises:
        EngineError: a request of the measurement failed.
    """
    found: Values = {name: [] for name in MEASURES}
    for record in records:
        if record["phase"] != "measurement":
            continue
        if record["transport_status"] != "complete":
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


def rows_of(target: str, rounds: Sequence[tuple[Values, Values]]) -> list[dict[str, Any]]:
    """Medians over all rounds, and ours divided by theirs with its interval.

    Args:
        target: target of `tts_bench`.
        rounds: the values of `tts_bench` and of ours in each round.
    """
    rows: list[dict[str, Any]] = []
    for name in MEASURES:
        pairs = [(theirs[name], ours[name]) for theirs, ours in rounds]
        medians = [_median([value for pair in pairs for value in pair[which]]) for which in (0, 1)]
        quotient = medians[1] / medians[0]
        low, high = _interval(pairs)
        rows.append(
            {
                "target": target,
                "measure": name,
                "n": [sum(len(pair[which]) for pair in pairs) for which in (0, 1)],
                "tts_bench_p50_ms": round(medians[0], 1),
                "ours_p50_ms": round(medians[1], 1),
                "ratio": round(quotient, 3),
                "ratio_interval": [round(low, 3), round(high, 3)],
                "agrees": abs(quotient - 1) <= _AGREEMENT,
            }
        )
    return rows


def _interval(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the ratio of medians: rounds are drawn, then requests."""
    rng = np.random.default_rng(0)
    pools = [[np.asarray(values, np.float64) for values in pair] for pair in pairs]
    quotients: list[float] = []
    for _ in range(_DRAWS):
        rounds = rng.integers(len(pools), size=len(pools))
        theirs, ours = (
            np.median(np.concatenate([rng.choice(pools[at][which], len(pools[at][which]))
                                      for at in rounds]))
            for which in (0, 1)
        )  # fmt: skip
        quotients.append(float(ours / theirs))
    low, high = np.percentile(quotients, (2.5, 97.5)).tolist()
    return low, high


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


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


@dataclass(frozen=True, slots=True)
class Plan:
    """How both programs load the server.

    Attributes:
        program: the executable `bench` of tts_bench.
        rate: arrivals per second, of each program.
        seconds: duration for each target in each round.
        rounds: rounds that count.
        first_audio_s: the server's delay of the first audio.
        folder: folder for texts, logs and results.
    """

    program: Path
    rate: float
    seconds: float
    rounds: int
    first_audio_s: float
    folder: Path

    async def compare(self, target: str, url: str, number: int) -> tuple[Values, Values]:
        """Load the server with both programs at once: the values of both in round `number`.

        Raises:
            EngineError: a program or a request failed.
        """
        fields = {"voice": _VOICE, "model": _MODEL, **_COMMON, **FIELDS[target]}
        folder = self.folder / f"round-{number}"
        folder.mkdir(exist_ok=True)
        theirs, ours = folder / target, folder / f"{target}.json"
        load = ["--seed", str(number), "--duration", f"{self.seconds:g}s"]
        await asyncio.gather(
            _run(
                str(self.program), "run", "--target", target, "--base-url", url,
                "--voice", _VOICE, "--dataset", str(self.folder / "texts.jsonl"),
                "--rps", f"{self.rate:g}", "--warmup", f"{_WARM_UP_S:g}s", *load,
                "--output", str(theirs), log=folder / f"{target}.tts_bench.txt",
            ),
            _run(
                sys.executable, "-m", "voiceagent_tts", "bench", "latency",
                "--target", f"{target}={url}{json.dumps(fields)}", "--together", "",
                "--rate", f"{self.rate:g}", "--warm-up-s", f"{_WARM_UP_S:g}",
                "--seconds", f"{self.seconds:g}", "--seed", str(number),
                "--json", str(ours), log=folder / f"{target}.ours.txt",
            ),
        )  # fmt: skip
        records = map(json.loads, (theirs / "requests.jsonl").read_text("utf-8").splitlines())
        (section,) = read_document(ours, "latency")["sections"]
        if section["failed"]:
            raise EngineError(f"bench: requests failed: {section['failures']}")
        return theirs_ms(records), section["values"]


async def compare_all(plan: Plan, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Compare both on every target, in rounds; `show` is told what runs.

    Raises:
        EngineError: a program or a request failed.
    """
    plan.folder.mkdir(parents=True, exist_ok=False)
    lines = [
        json.dumps({"id": f"text-{number}", "text": text.text})
        for number, text in enumerate(choose_texts(["en"], []))
    ]
    (plan.folder / "texts.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    environment = {
        "VOICEAGENT_TTS_ENGINE": "espeak",
        VARIABLE: json.dumps({"first_audio_s": plan.first_audio_s}),
    }
    log, program = plan.folder / "server.log", "testbed.throttled_server"
    found: dict[str, list[tuple[Values, Values]]] = {target: [] for target in FIELDS}
    async with own_server(log=log, environment=environment, module=program) as server:
        url = http_address(server.url, "")
        for number in range(plan.rounds + 1):
            for target in order_of(number):
                show(f"round {number} of {plan.rounds}, {target}")
                values = await plan.compare(target, url, number)
                if number:
                    found[target].append(values)
    return [row for target, rounds in found.items() for row in rows_of(target, rounds)]


def order_of(number: int) -> list[str]:
    """The targets of a round: in the round before the first one only one, to warm the server up."""
    targets = list(FIELDS)
    if not number:
        return targets[:1]
    first = (number - 1) % len(targets)
    return targets[first:] + targets[:first]


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows as a table."""
    table = Table(title="p50 from the planned start, in ms", box=None)
    for heading in ("target", "measure", "n", "tts_bench", "ours", "ours ÷ theirs", "within 10 %"):
        table.add_column(heading, justify="left" if heading in ("target", "measure") else "right")
    for row in rows:
        low, high = row["ratio_interval"]
        counts = " and ".join(map(str, row["n"]))
        quotient = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"
        medians = (f"{row[name]:.1f}" for name in ("tts_bench_p50_ms", "ours_p50_ms"))
        agrees = "yes" if row["agrees"] else "no"
        table.add_row(row["target"], row["measure"], counts, *medians, quotient, agrees)
    return table


def main(
    program: Annotated[Path, typer.Option(help="The executable `bench` of tts_bench.")],
    rate: Annotated[float, typer.Option(help="Arrivals per second, of each program.")] = 2.0,
    seconds: Annotated[float, typer.Option(help="Duration for each target, in each round.")] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; one more warms the server up.")] = 4,
    first_audio_s: Annotated[
        float, typer.Option(help="Slow the first audio down by this, as a larger model would.")
    ] = 0.2,
    out: Annotated[Path, typer.Option(help="Folder for their files; a new one.")] = Path(
        "out/tts_bench"
    ),
) -> None:
    """Compare both programs, and print a table and one JSON object."""
    origin = provenance()
    plan = Plan(program.resolve(), rate, seconds, rounds, first_audio_s, out)
    rows = asyncio.run(compare_all(plan, lambda line: print(line, file=sys.stderr, flush=True)))
    Console().print(table_of(rows))
    plain = {"rate": rate, "seconds": seconds, "rounds": rounds, "first_audio_s": first_audio_s}
    agreed = sum(row["agrees"] for row in rows)
    publish({"kind": "tts_bench", **origin, **plain, "agreed": agreed, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
