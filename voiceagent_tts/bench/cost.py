"""What a server of one's own costs beside hosted speech: traffic, capacity and prices.

Everything is an input: the traffic of a request log or two figures, the capacity of a measured
report, and prices. Machines are rented by the hour around the clock, and are enough for the busiest
minute. What people and operations cost is not in it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from voiceagent_tts.bench.document import flat
from voiceagent_tts.errors import InvalidRequestError

HOURS_PER_MONTH = 365.25 * 24 / 12
_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
_MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has to be spoken.

    Attributes:
        chars_per_month: characters in a month of 30.4 days.
        peak_factor: characters in the busiest minute, divided by those of the mean minute.
    """

    chars_per_month: float
    peak_factor: float

    @property
    def peak_chars_per_s(self) -> float:
        """Characters per second in the busiest minute."""
        return self.chars_per_month / _SECONDS_PER_MONTH * self.peak_factor


@dataclass(frozen=True, slots=True)
class Comparison:
    """One hosted price beside machines of one's own; US$ and characters per month.

    Attributes:
        name: who asks for the price.
        hosted_usd: the month's traffic at that price.
        own_usd: the machines' rent.
        break_even_chars: traffic from which the present number of machines is cheaper.
        is_reachable: whether these machines can speak that much, at the same peak factor.
    """

    name: str
    hosted_usd: float
    own_usd: float
    break_even_chars: float
    is_reachable: bool


@dataclass(frozen=True, slots=True)
class Costs:
    """The result.

    Attributes:
        machines: enough for the busiest minute, and for `spare` more.
        own_usd: their rent for a month.
        usd_per_million_chars: that rent for each million characters of the traffic.
        utilization: the mean load of the machines, as a share of their capacity.
        comparisons: beside each hosted price.
    """

    machines: int
    own_usd: float
    usd_per_million_chars: float
    utilization: float
    comparisons: tuple[Comparison, ...]


def costs(
    traffic: Traffic,
    chars_per_s: float,
    usd_per_hour: float,
    hosted: Mapping[str, float],
    spare: int = 0,
) -> Costs:
    """Compare.

    Args:
        traffic: what has to be spoken.
        chars_per_s: what one machine speaks.
        usd_per_hour: its rent.
        hosted: name -> US$ per million characters.
        spare: machines beyond those that the busiest minute needs.

    Raises:
        InvalidRequestError: an input is not positive.
    """
    inputs = {
        "traffic": traffic.chars_per_month, "peak factor": traffic.peak_factor,
        "capacity": chars_per_s, "price per hour": usd_per_hour, **hosted,
    }  # fmt: skip
    for name, value in inputs.items():
        if not (math.isfinite(value) and value > 0):
            raise InvalidRequestError(f"{name}: expected a positive number, got {value:g}")
    machines = math.ceil(traffic.peak_chars_per_s / chars_per_s - 1e-9) + spare
    own_usd = machines * usd_per_hour * HOURS_PER_MONTH
    most_chars = machines * chars_per_s * _SECONDS_PER_MONTH / traffic.peak_factor * (1 + 1e-9)
    comparisons = [
        Comparison(
            name,
            traffic.chars_per_month / 1e6 * usd,
            own_usd,
            own_usd / usd * 1e6,
            own_usd / usd * 1e6 <= most_chars,
        )
        for name, usd in hosted.items()
    ]
    mean_chars_per_s = traffic.chars_per_month / _SECONDS_PER_MONTH
    return Costs(
        machines,
        own_usd,
        own_usd / (traffic.chars_per_month / 1e6),
        mean_chars_per_s / (machines * chars_per_s),
        tuple(comparisons),
    )


def traffic_of(log: Path) -> Traffic:
    """The traffic of a server's request log (`VOICEAGENT_TTS_REQUEST_LOG`), scaled to a month.

    Raises:
        InvalidRequestError: the log covers less than an hour, or a line is not one of such a log.
        OSError: it cannot be read.
    """
    by_minute: Counter[int] = Counter()
    for number, line in enumerate(log.read_text("utf-8").splitlines(), 1):
        try:
            fields = json.loads(line)
            at = datetime.fromisoformat(fields["time"]).timestamp()
            by_minute[int(at // _MINUTE_S)] += int(fields["chars"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(
                f"{log}, line {number}: expected a line of a request log; {type(error).__name__}"
            ) from None
    minutes = max(by_minute, default=0) - min(by_minute, default=0) + 1
    if minutes < 60:
        raise InvalidRequestError(
            f"{log}: expected a request log of at least an hour, got {minutes} minutes; "
            "try --chars-per-month and --peak-factor"
        )
    mean = by_minute.total() / minutes
    if not mean:
        raise InvalidRequestError(f"{log}: expected requests with text, got none")
    chars_per_month = mean * _SECONDS_PER_MONTH / _MINUTE_S
    return Traffic(chars_per_month, max(by_minute.values()) / mean)


def capacity_of(document: Mapping[str, Any], limit_ms: float) -> tuple[float, str]:
    """The most characters per second of a report's sections that served every listener.

    Args:
        document: a document of `bench latency`.
        limit_ms: limit of the p95 of the first audible sample.

    Returns:
        The characters per second, and the section that had them.

    Raises:
        InvalidRequestError: every section had a failure, an underrun or a late first sample.
    """
    good = [each for each in map(flat, document["sections"]) if _is_good(each, limit_ms)]
    if not good:
        raise InvalidRequestError(
            "expected a report with a section without failures and underruns and with a p95 of at "
            f"most {limit_ms:g} ms; got none. Measure a lighter load, or raise --limit-ms"
        )
    best = max(good, key=lambda each: each["chars_per_s"])
    return best["chars_per_s"], f"{best['target']}, {best['load']}"


def _is_good(section: Mapping[str, Any], limit_ms: float) -> bool:
    has_problems = section["failed"] or section["silent"] or section["with_underruns"]
    return not has_problems and section.get("audible_p95_ms", math.inf) <= limit_ms


def hosted_prices(options: Iterable[str]) -> dict[str, float]:
    """`NAME=USD` options -> US$ per million characters by name.

    Raises:
        InvalidRequestError: an option has another form.
    """
    prices: dict[str, float] = {}
    for option in options:
        name, _, usd = option.rpartition("=")
        try:
            prices[name.strip()] = float(usd)
        except ValueError:
            name = ""
        if not name.strip():
            raise InvalidRequestError(
                f"--hosted: expected NAME=USD per million characters, as cloud=15; got {option!r}"
            )
    return prices


def lines_of(result: Costs, traffic: Traffic, chars_per_s: float, source: str) -> Sequence[str]:
    """The result in sentences."""
    lines = [
        f"traffic: {traffic.chars_per_month:,.0f} characters a month; "
        f"{traffic.peak_chars_per_s:,.1f} a second in the busiest minute",
        f"capacity: {chars_per_s:,.1f} characters a second on one machine ({source})",
        f"machines: {result.machines}, {100 * result.utilization:.1f} % used in the mean; "
        f"US$ {result.own_usd:,.0f} a month, "
        f"US$ {result.usd_per_million_chars:,.2f} per million characters",
    ]
    for each in result.comparisons:
        cheaper = "own machines" if each.own_usd < each.hosted_usd else each.name
        reach = "" if each.is_reachable else ", which is more than they can speak"
        lines.append(
            f"{each.name}: US$ {each.hosted_usd:,.0f} a month; {cheaper} cheaper by "
            f"US$ {abs(each.hosted_usd - each.own_usd):,.0f}. These machines break even at "
            f"{each.break_even_chars:,.0f} characters a month{reach}"
        )
    return lines
