"""Counters of a server's `/metrics` and of its processes, and what they say about a load."""

from urllib.parse import urlsplit

import httpx
import psutil

_STAGES = ("prefill", "predictor", "talker", "codec", "host")
_FREED = "tts_engine_abort_seconds"

Counters = dict[str, float]


async def read_counters(url: str) -> Counters:
    """Every counter of the server at `url` (`ws://`), summed over its labels."""
    parts = urlsplit(url)
    async with httpx.AsyncClient() as http:
        address = f"{parts.scheme.replace('ws', 'http')}://{parts.netloc}/metrics"
        answer = await http.get(address)
    counters: Counters = {}
    for line in (text for text in answer.text.splitlines() if not text.startswith("#")):
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name.endswith(("_total", "_sum", "_count")):
            counters[name] = counters.get(name, 0.0) + float(value)
    return counters


def stages(before: Counters, after: Counters) -> dict[str, float]:
    """Mean milliseconds of a step by stage between two readings, and its mean number of rows."""
    added = {name: value - before.get(name, 0.0) for name, value in after.items()}
    steps = added.get("tts_worker_steps_total", 0.0)
    if not steps:
        return {}
    times = {
        f"{stage}_ms": round(1000 * added[f"tts_worker_{stage}_seconds_total"] / steps, 2)
        for stage in _STAGES
    }
    return {
        **times,
        "steps": int(steps),
        "rows_per_step": round(added["tts_worker_frames_total"] / steps, 1),
        **_freed_rows(added),
    }


def _freed_rows(added: Counters) -> dict[str, float]:
    """Return how many rows barge-ins freed, and after how long."""
    rows = added.get(f"{_FREED}_count", 0.0)
    mean_ms = 1000 * added[f"{_FREED}_sum"] / rows if rows else 0.0
    return {"freed_rows": int(rows), "freed_mean_ms": round(mean_ms, 2)}


def processor_seconds(pid: int) -> dict[str, float]:
    """Return the processor seconds that a server and its workers have used so far, by process."""
    server = psutil.Process(pid)
    used: dict[str, float] = {}
    for process in (server, *server.children(recursive=True)):
        times = process.cpu_times()
        name = "server_cpu_s" if process.pid == pid else "workers_cpu_s"
        used[name] = used.get(name, 0.0) + times.user + times.system
    return used
