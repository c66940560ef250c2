"""`voiceagent-tts cost`: machines of one's own beside hosted speech."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from voiceagent_tts.errors import InvalidRequestError


def cost(
    hosted: Annotated[
        list[str],
        typer.Option(
            help="A hosted service and its price in US$ per million characters, as NAME=15; may be "
            "repeated."
        ),
    ],
    price: Annotated[float, typer.Option(help="Rent of one machine in US$ per hour.")],
    report: Annotated[
        Path | None,
        typer.Option(help="File of `bench latency --json`, which has what one machine can speak."),
    ] = None,
    chars_per_s: Annotated[
        float | None,
        typer.Option(
            help="What one machine can speak, in characters per second; in place of --report."
        ),
    ] = None,
    traffic: Annotated[
        Path | None, typer.Option(help="Request log of a server, which has the traffic.")
    ] = None,
    chars_per_month: Annotated[
        float | None, typer.Option(help="Characters per month; in place of --traffic.")
    ] = None,
    peak_factor: Annotated[
        float,
        typer.Option(help="With --chars-per-month: the busiest minute divided by the mean minute."),
    ] = 4.0,
    spare: Annotated[
        int, typer.Option(min=0, help="Spare machines, in addition to those needed at the peak.")
    ] = 0,
    limit_ms: Annotated[
        float,
        typer.Option(
            help="With --report: highest acceptable p95 of the time to the first audible sample."
        ),
    ] = 300.0,
) -> None:
    """Compare the cost of your own machines with that of a hosted speech service.

    Says above which monthly traffic your machines are cheaper. You give every price. The last line
    of standard output is one JSON object.
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
