"""The document of a run: provenance, sections, their measures with intervals, and all values."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voiceagent_tts.plugins.bench.callers import Section, Traffic
from voiceagent_tts.plugins.bench.measures import values_of
from voiceagent_tts.plugins.bench.statistics import RANKS, percentiles

SCHEMA = "voiceagent-tts bench 1"
GOOD_AUDIBLE_MS = 300.0
GOOD_UNDERRUN_MS = 100.0
_DIGITS = 4


def section_document(target: str, section: Section, traffic: Traffic, seed: int) -> dict[str, Any]:
    """One section's counts, rates, measures and values; `seed` is that of the intervals."""
    values = values_of(traffic.utterances)
    lags_ms = [1000 * lag_s for lag_s in traffic.lags_s]
    return {
        "target": target,
        "load": section.name,
        "seconds": _rounded(traffic.seconds),
        **_counts(traffic),
        **_rates(traffic),
        "client_lag_p99_ms": _rounded(percentiles(lags_ms)[99].value) if lags_ms else None,
        **measures_of(values, seed),
    }


def measures_of(values: Mapping[str, Sequence[float]], seed: int = 0) -> dict[str, Any]:
    """The fields `measures` and `values` of a section, from the values of each measure."""
    return {
        "measures": {name: _figures(of, seed) for name, of in values.items()},
        "values": {name: [_rounded(value) for value in of] for name, of in values.items()},
    }


def _counts(traffic: Traffic) -> dict[str, Any]:
    utterances = traffic.utterances
    failures = Counter(str(each.failure) for each in utterances if each.failure is not None)
    return {
        "utterances": len(utterances),
        "complete": sum(each.is_complete for each in utterances),
        "interrupted": sum(each.cancelled is not None for each in utterances),
        "failed": failures.total(),
        "failures": dict(failures.most_common()),
        "silent": sum(each.failure is None and not each.is_audible for each in utterances),
        "with_underruns": sum(each.heard_playback.underruns > 0 for each in utterances),
        "underruns": sum(each.heard_playback.underruns for each in utterances),
    }


def _rates(traffic: Traffic) -> dict[str, Any]:
    seconds = traffic.seconds or math.inf
    chars = sum(len(each.request.text) for each in traffic.utterances if each.is_complete)
    good = sum(map(_is_good, traffic.utterances)) / max(1, len(traffic.utterances))
    return {
        "audio_s_per_s": _rounded(sum(each.audio_s for each in traffic.utterances) / seconds),
        "chars_per_s": _rounded(chars / seconds),
        "good_percent": _rounded(100 * good),
    }


def _is_good(utterance: Any) -> bool:
    """Whether its listener was served: sound within 300 ms, and less than 100 ms of underruns."""
    values = values_of([utterance])
    return (
        utterance.failure is None
        and values.get("audible_ms", [math.inf])[0] < GOOD_AUDIBLE_MS
        and values.get("underrun_ms", [math.inf])[0] < GOOD_UNDERRUN_MS
    )


def _figures(values: Sequence[float], seed: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"n": len(values), "mean": _rounded(sum(values) / len(values))}
    for rank, interval in percentiles(values, seed).items():
        figures[f"p{rank}"] = _rounded(interval.value)
        figures[f"p{rank}_interval"] = [_rounded(interval.low), _rounded(interval.high)]
    return figures


def _rounded(value: float) -> float:
    return round(float(value), _DIGITS)


def flat(section: dict[str, Any]) -> dict[str, Any]:
    """A section without values and intervals: one figure for each name, as `audible_p95_ms`."""
    figures = {
        name: of for name, of in section.items() if name not in ("measures", "values", "failures")
    }
    for name, measure in section["measures"].items():
        stem, unit = _stem_and_unit(name)
        figures |= {f"{stem}_p{rank}{unit}": measure[f"p{rank}"] for rank in RANKS}
    return figures


def _stem_and_unit(name: str) -> tuple[str, str]:
    for unit in ("_ms", "_s"):
        if name.endswith(unit):
            return name.removesuffix(unit), unit
    return name, ""


def last_line(document: dict[str, Any]) -> str:
    """The document as one line of JSON, without values and intervals."""
    short = document | {"sections": [flat(section) for section in document["sections"]]}
    return json.dumps(short, ensure_ascii=False)


def write_document(document: dict[str, Any], path: Path) -> None:
    """Write the document; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n", "utf-8")
