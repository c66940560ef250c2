"""`voiceagent-tts cost`: machines of one's own beside hosted speech."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.errors import InvalidRequestError


def cost(
    hosted: Annotated[
        list[str], typer.Option(help="NAME=USD per million characters; may be repeated.")
    ],
    price: Annotated[float, typer.Option(help="US$ per hour of one machine.")],
    report: Annotated[
        Path | None, typer.Option(help="Document of `bench latency --json`: the capacity.")
    ] = None,
    chars_per_s: Annotated[
        float | None, typer.Option(help="Capacity of one machine, in place of --report.")
    ] = None,
    traffic: Annotated[
        Path | None, typer.Option(help="A server's request log: the traffic.")
    ] = None,
    chars_per_month: Annotated[
        float | None, typer.Option(help="The traffic, in place of --traffic.")
    ] = None,
    peak_factor: Annotated[
        float, typer.Option(help="With it: the busiest minute divided by the mean minute.")
    ] = 4.0,
    spare: Annotated[int, typer.Option(min=0, help="Machines beyond those at the peak.")] = 0,
    limit_ms: Annotated[
        float, typer.Option(help="With --report: limit of the p95 of the first audible sample.")
    ] = 300.0,
) -> None:
    """Compute from which traffic machines of one's own are cheaper than hosted speech.

    Every price is an input. The last line of standard output is one JSON object.
    """
    from voiceagent_tts.bench.cost import (
        Traffic,
        capacity_of,
        costs,
        hosted_prices,
        lines_of,
        traffic_of,
    )
    from voiceagent_tts.bench.document import read_document

    if (report is None) == (chars_per_s is None):
        raise InvalidRequestError("expected exactly one of --report and --chars-per-s")
    if (traffic is None) == (chars_per_month is None):
        raise InvalidRequestError("expected exactly one of --traffic and --chars-per-month")
    source = "as given"
    if report is not None:
        chars_per_s, source = capacity_of(read_document(report, kind="latency"), limit_ms)
    assert chars_per_s is not None
    asked = Traffic(chars_per_month or 0.0, peak_factor) if traffic is None else traffic_of(traffic)
    result = costs(asked, chars_per_s, price, hosted_prices(hosted), spare)
    for line in lines_of(result, asked, chars_per_s, source):
        typer.echo(line)
    typer.echo(json.dumps({"chars_per_s": chars_per_s, **asdict(asked), **asdict(result)}))
