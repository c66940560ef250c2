"""Counters of a server's `/metrics`, and what they say about the stages of an engine's step."""

from urllib.parse import urlsplit

import httpx

_STAGES = ("prefill", "predictor", "talker", "codec", "host")

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
        if name.endswith("_total"):
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
    return {**times, "rows_per_step": round(added["tts_worker_frames_total"] / steps, 1)}
