"""How much load does a server carry, and how soon does a listener hear audio under that load?

Calls arrive as a Poisson process at each of `--rates` (an open loop: late answers do not slow it
down), then `--together` at a time (a closed loop). Each call sends one sentence of an agent and
plays the audio on arrival; a share of them requests a long reply and barges in. For each section
the benchmark reports

- audible TTFA: from just before the text is sent until the listener hears the first sound;
- underruns: how often playback reached audio that had not arrived;
- RTF: seconds from text to `done` per second of audio; E2E: those seconds;
- seconds of audio and characters per second of the section, and the cost of a million characters on
  a machine that costs `--price` per hour;
- cancel latency, and the generated audio that a barge-in discarded;
- the time of the engine's steps by stage, if its metrics report it.

The knee is the heaviest section with all calls complete, no underrun, and a p95 of audible TTFA
within `--limit-ms`. Unless `--url` names a server, one is started as a separate process, with
`--model` or a tiny model of random weights; `VOICEAGENT_TTS_*` variables configure it. Random
weights rarely end a sequence, so `--frames` fixes its length.
"""

import asyncio
import contextlib
import importlib.util
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.service.calls import Call, Callers, Traffic, plan_calls
from benchmarks.service.own_server import own_server
from voiceagent_tts.client import authorization
from voiceagent_tts.errors import ErrorCode

_OUT = Path("out/load")
_WARM_UP_CALLS = 4
_LEAST_ROWS = 64
_STAGES = ("prefill", "predictor", "talker", "codec", "host")


@dataclass(frozen=True, slots=True)
class Section:
    """One load.

    Attributes:
        rate: calls per second; None in a closed loop.
        together: concurrent calls; None in an open loop.
    """

    rate: float | None = None
    together: int | None = None

    @property
    def name(self) -> str:
        """Name in tables and in the JSON object."""
        return f"{self.together} together" if self.rate is None else f"{self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of one section.

    Attributes:
        section: the load.
        traffic: its calls.
        counters: increase of each counter in the server's metrics.
    """

    section: Section
    traffic: Traffic
    counters: dict[str, float]


class Metrics:
    """Reads the counters of a server, if it publishes them.

    Args:
        url: WebSocket URL of the server.
        api_key: key, if the server requires one.
    """

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        self._url = f"{parts.scheme.replace('ws', 'http')}://{parts.netloc}/metrics"
        self._headers = authorization(api_key)

    async def read(self) -> dict[str, float]:
        """Return every counter, summed over its labels; empty if the server has no `/metrics`."""
        async with httpx.AsyncClient(headers=self._headers) as http:
            answer = await http.get(self._url)
        if answer.is_error:
            return {}
        counters: dict[str, float] = {}
        for line in (text for text in answer.text.splitlines() if not text.startswith("#")):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            if name.endswith("_total"):
                counters[name] = counters.get(name, 0.0) + float(value)
        return counters


async def measure(
    sections: Sequence[Section],
    callers: Callers,
    metrics: Metrics,
    *,
    seconds: float,
    barge_ins: float,
    seed: int,
    console: Console,
) -> AsyncIterator[Result]:
    """Run each section after a few calls of warm-up; yield its result."""
    await callers.closed_loop(plan_calls(0.0, seed - 1), _WARM_UP_CALLS, 0.01)
    for section in sections:
        plans = plan_calls(barge_ins, seed)
        before = await metrics.read()
        with console.status(f"{section.name}, for {seconds:g} s"):
            if section.together is not None:
                traffic = await callers.closed_loop(plans, section.together, seconds)
            else:
                assert section.rate is not None
                traffic = await callers.open_loop(plans, section.rate, seconds, seed)
        after = await metrics.read()
        counters = {name: value - before.get(name, 0.0) for name, value in after.items()}
        yield Result(section, traffic, counters)


def summarize(result: Result, price: float) -> dict[str, Any]:
    """Return the figures of a section, under their names in the JSON object."""
    calls = result.traffic.calls
    complete = [call for call in calls if call.is_complete]
    failures = [call.failure for call in calls if call.failure is not None]
    audio_s = sum(call.audio_s for call in calls)
    return {
        "contexts": len(calls),
        "failed": len(failures),
        "refused": failures.count(ErrorCode.OVERLOADED),
        "silent": sum(call.failure is None and call.audible_s is None for call in calls),
        **_first_sounds(calls),
        "underruns": sum(call.playback.underruns for call in calls),
        "underrun_ms": round(1000 * sum(call.playback.underrun_s for call in calls), 1),
        **_durations(complete),
        "audio_seconds_per_s": round(audio_s / result.traffic.seconds, 2),
        **_cost(sum(len(call.plan.text) for call in complete) / result.traffic.seconds, price),
        **_barge_ins(calls, result.counters),
        **_stages(result.counters),
        "client_lag_p99_ms": percentiles(_ms(result.traffic.client_lag_s), digits=1)["p99_ms"],
    }


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * value for value in seconds] or [0.0]


def _first_sounds(calls: Sequence[Call]) -> dict[str, float]:
    audible = [call.audible_s for call in calls if call.failure is None]
    figures = percentiles(_ms([value for value in audible if value is not None]), digits=1)
    return {f"audible_ttfa_{name}": value for name, value in figures.items()}


def _durations(complete: Sequence[Call]) -> dict[str, float]:
    """Return RTF and E2E of complete calls; interrupted ones say nothing about a whole text."""
    e2e_s = [call.ended - call.began for call in complete]
    rtf = [took / call.audio_s for took, call in zip(e2e_s, complete, strict=True) if call.audio_s]
    e2e = percentiles(_ms(e2e_s), digits=0)
    p50, p90 = (sorted(rtf)[int(share * (len(rtf) - 1))] if rtf else 0.0 for share in (0.5, 0.9))
    return {
        "rtf_p50": round(p50, 4),
        "rtf_p90": round(p90, 4),
        "e2e_p50_ms": e2e["p50_ms"],
        "e2e_p95_ms": e2e["p95_ms"],
    }


def _cost(chars_per_s: float, price: float) -> dict[str, float]:
    """Return the cost on a machine that does nothing else: 10^6 P / (3600 T)."""
    usd = 1e6 * price / (3600 * chars_per_s) if chars_per_s else 0.0
    return {"chars_per_s": round(chars_per_s, 1), "usd_per_million_chars": round(usd, 3)}


def _barge_ins(calls: Sequence[Call], counters: dict[str, float]) -> dict[str, float]:
    cancels_s = [call.cancel_s for call in calls if call.cancel_s is not None]
    figures = percentiles(_ms(cancels_s), digits=1)
    discarded_s = counters.get("tts_audio_discarded_seconds_total", 0.0)
    discarded_s += sum(call.unheard_s for call in calls)
    return {
        "barge_ins": sum(call.plan.barge_in_s is not None for call in calls),
        "cancels": len(cancels_s),
        "cancel_p50_ms": figures["p50_ms"],
        "cancel_p95_ms": figures["p95_ms"],
        "discarded_audio_s": round(discarded_s, 1),
    }


def _stages(counters: dict[str, float]) -> dict[str, float]:
    """Return the mean milliseconds of a step by stage, and its mean number of rows."""
    steps = counters.get("tts_worker_steps_total", 0.0)
    if not steps:
        return {}
    stages = {
        f"{stage}_ms": round(1000 * counters[f"tts_worker_{stage}_seconds_total"] / steps, 2)
        for stage in _STAGES
    }
    return {**stages, "rows_per_step": round(counters["tts_worker_frames_total"] / steps, 1)}


def knee_of(figures: dict[str, dict[str, Any]], limit_ms: float) -> str | None:
    """Return the section with most characters per second among those without problems."""
    good = [
        name
        for name, section in figures.items()
        if not (section["failed"] or section["silent"] or section["underruns"])
        and section["audible_ttfa_p95_ms"] <= limit_ms
    ]
    return max(good, key=lambda name: figures[name]["chars_per_s"], default=None)


def total(figures: dict[str, dict[str, Any]], limit_ms: float) -> dict[str, Any]:
    """Summarize the run: counts of all sections, and the knee's figures or the first section's."""
    knee = knee_of(figures, limit_ms)
    best = figures[knee or next(iter(figures))]
    counts = {
        name: sum(section[name] for section in figures.values())
        for name in ("underruns", "contexts", "failed", "refused", "silent")
    }
    shown = ("audible_ttfa_p95_ms", "audio_seconds_per_s", "chars_per_s", "usd_per_million_chars")
    return {**{name: best[name] for name in shown}, **counts, "knee": knee, "sections": figures}


_COLUMNS = {
    "calls": "contexts",
    "failed": "failed",
    "TTFA p50": "audible_ttfa_p50_ms",
    "p95": "audible_ttfa_p95_ms",
    "p99": "audible_ttfa_p99_ms",
    "underruns": "underruns",
    "RTF p90": "rtf_p90",
    "E2E p50": "e2e_p50_ms",
    "audio s/s": "audio_seconds_per_s",
    "chars/s": "chars_per_s",
    "$/M chars": "usd_per_million_chars",
    "cancel p95": "cancel_p95_ms",
    "discarded s": "discarded_audio_s",
}


def table_of(figures: dict[str, dict[str, Any]], knee: str | None) -> Table:
    """Return the figures as a table."""
    table = Table(title="A server under load; times in ms", box=None)
    table.add_column("load", no_wrap=True)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right")
    for name, section in figures.items():
        cells = (str(section[field]) for field in _COLUMNS.values())
        table.add_row(f"{name} *" if name == knee else name, *cells)
    table.caption = "* the knee" if knee else "no section without a failure or an underrun"
    return table


def ending_after(model: Path, frames: int, folder: Path) -> Path:
    """Link a model whose recommended settings end every sequence after `frames` frames."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in model.resolve().iterdir():
        if file.name != "generation_config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((model / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(config | {"max_new_tokens": frames}))
    return folder


def own_model(model: Path | None, frames: int | None) -> Path:
    """Return the model to serve: the given one or a tiny one, with sequences of fixed length."""
    if model is None:
        # imported here because they load PyTorch, which the client of a server does not need
        from testbed.checkpoint import write_checkpoint
        from testbed.tiny import TINY_CODEC, tiny_model

        model = _OUT / "tiny"
        if not model.exists():
            write_checkpoint(model, tiny_model(), TINY_CODEC, seed=0)
    return model if frames is None else ending_after(model, frames, _OUT / "model")


@contextlib.asynccontextmanager
async def server_at(
    url: str | None, model: Path, device: str | None, rows: int
) -> AsyncIterator[str]:
    """Yield the URL of the requested server: a running one, or one that is started here."""
    if url is not None:
        yield url
        return
    arguments = ["--model", str(model), "--rows", str(rows)]
    arguments += [] if device is None else ["--device", device]
    async with own_server(*arguments, log=_OUT / "server.log") as server:
        yield server.url


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",") if part.strip()]


def main(
    rates: Annotated[str, typer.Option(help="Calls per second, one section each.")] = "1,2,4,8",
    together: Annotated[str, typer.Option(help="Concurrent calls, by section.")] = "1,4,16,64",
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each section.")] = 20,
    barge_ins: Annotated[float, typer.Option(min=0, max=1, help="Share of barge-ins.")] = 0.15,
    model: Annotated[Path | None, typer.Option(help="Folder of a model.")] = None,
    frames: Annotated[
        int | None,
        typer.Option(min=2, help="Frames of every sequence; default: until it ends."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device of the started server.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of the started server; default: enough."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running server: ws://HOST:PORT.")] = None,
    voice: Annotated[str | None, typer.Option(help="Voice; by default the server's.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Key of the server at --url.")] = None,
    max_lead_s: Annotated[
        float | None, typer.Option(help="Maximum lead of audio over playback; 0 for unpaced.")
    ] = None,
    price: Annotated[float, typer.Option(help="Price of the machine in US$ per hour.")] = 3.0,
    limit_ms: Annotated[float, typer.Option(help="Limit of the knee's p95 audible TTFA.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of texts, arrivals and voices.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
    png: Annotated[Path, typer.Option(help="File of the plot.")] = _OUT / "load.png",
) -> None:
    """Measure a server under load."""
    origin = provenance()
    sections = [Section(rate=rate) for rate in _numbers(rates)]
    sections += [Section(together=int(count)) for count in _numbers(together)]
    if not sections:
        raise typer.BadParameter("expected --rates or --together; got neither")
    if model is None and url is None and frames is None:
        frames = 24

    async def run() -> list[Result]:
        own = Path() if url is not None else own_model(model, frames)
        most = max(_LEAST_ROWS, *(section.together or 0 for section in sections))
        # A row is free one step after its call was interrupted, and a probe may use one.
        count = rows or most + most // 8
        async with server_at(url, own, device, count) as address:
            callers = Callers(address, voice, api_key, max_lead_s)
            try:
                measured = measure(
                    sections, callers, Metrics(address, api_key),
                    seconds=seconds, barge_ins=barge_ins, seed=seed, console=Console(stderr=True),
                )  # fmt: skip
                return [result async for result in measured]
            finally:
                await callers.close()

    figures = {result.section.name: summarize(result, price) for result in asyncio.run(run())}
    whole = total(figures, limit_ms)
    Console().print(table_of(figures, whole["knee"]))
    if importlib.util.find_spec("matplotlib") is not None:  # a GPU machine may lack it
        from benchmarks.service.load_plot import plot

        plot(figures, limit_ms, png)
    publish({**whole, "price": price, **origin}, json)


if __name__ == "__main__":
    typer.run(main)
