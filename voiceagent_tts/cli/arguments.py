"""Arguments that several commands have."""

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        help="Running server (ws://HOST:PORT); its key is in VOICEAGENT_TTS_API_KEY. "
        "[default: a temporary server]"
    ),
]


def valid_unicode(value: str) -> str:
    """Reject an argument that is not UTF-8, which Python represents with lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("expected UTF-8") from None
    return value
