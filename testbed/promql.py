"""The metrics that PromQL expressions name, and those that a server's scrape has."""

import re

import httpx

from voiceagent_tts.server.serve import RunningServer

_OF_PROMETHEUS = {"up", "ALERTS"}
_METRIC = re.compile(r"\b(?:tts|process)[_:][\w:]*|\b(?:up|ALERTS)\b")
_LABELS = re.compile(r"\{[^}]*\}|\b(?:by|on)\s*\([^)]*\)|\"[^\"]*\"")


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that an expression names, without those of Prometheus itself."""
    return set(_METRIC.findall(_LABELS.sub("", expression))) - _OF_PROMETHEUS


async def scraped_names(server: RunningServer) -> set[str]:
    """Return every name that a scrape of the server has, also of histograms' parts."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{server.url}/metrics")).text
    names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + part for part in parts}
    return names
