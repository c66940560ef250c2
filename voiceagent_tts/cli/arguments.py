"""Arguments that several commands have."""

import math
from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        envvar="VOICEAGENT_TTS_URL",
        help="Running server (ws://HOST:PORT); its key is in VOICEAGENT_TTS_API_KEY. "
        "[default: a temporary server]",
    ),
]


def finite(value: float) -> float:
    """Reject NaN, which passes every `min` and `max`, and infinity."""
    if not math.isfinite(value):
        raise typer.BadParameter("expected a finite number")
    return value


def valid_unicode(value: str) -> str:
    """Reject an argument that is not UTF-8, which Python represents with lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("expected UTF-8") from None
    return value


Speed = Annotated[float, typer.Option(min=0.25, max=4.0, callback=finite, help="Speaking rate.")]
