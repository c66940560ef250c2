"""`cache warm`, `cache stats` and `cache clear`: the phrases that a running server has cached."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from voiceagent_tts.errors import InvalidRequestError

app = typer.Typer(help="Fill, show and clear the cache of a running server.", no_args_is_help=True)

Url = Annotated[str, typer.Option(help="Running server (ws://HOST:PORT).")]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="VOICEAGENT_TTS_API_KEY", help="Key with the scope `admin`."),
]

_DEFAULT_URL = "ws://127.0.0.1:8765"
_PHRASE_TIMEOUT_S = 300.0


@app.command()
def warm(
    file: Annotated[
        Path, typer.Argument(help="Phrases, one per line; lines that begin with # are left out.")
    ],
    voice: Annotated[str | None, typer.Option(help="Voice that speaks them.")] = None,
    language: Annotated[str | None, typer.Option(help="Language, if contexts name it.")] = None,
    instruct: Annotated[str | None, typer.Option(help="How to speak.")] = None,
    speed: Annotated[float, typer.Option(help="Speaking rate.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed, where contexts set one.")] = None,
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Speak phrases into the cache, with the options that contexts will have."""
    options = {
        "voice": voice,
        "language": language,
        "instruct": instruct,
        "speed": speed,
        "seed": seed,
    }
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    phrases = [line for line in lines if line and not line.startswith("#")]
    stored = cached = 0
    for phrase in phrases:
        answer = _ask("POST", url, api_key, {"text": phrase, **options})
        stored += answer["stored"]
        cached += answer["cached"]
    sys.stdout.write(
        f"{len(phrases)} phrases: stored {stored} segments, {cached} were in the cache\n"
    )


@app.command()
def stats(url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Print what the cache holds and how often it was used, one figure per line."""
    for name, value in _ask("GET", url, api_key).items():
        sys.stdout.write(f"{name}: {'-' if value is None else json.dumps(value)}\n")


@app.command()
def clear(url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Drop all phrases, on all servers that share them."""
    answer = _ask("DELETE", url, api_key)
    sys.stdout.write(f"dropped {answer['dropped']} phrases\n")
    if not answer["shared"]:
        raise InvalidRequestError(
            "Redis is away: other servers keep their phrases; run `cache clear` again later"
        )


def _ask(
    method: str, url: str, api_key: str | None, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    from voiceagent_tts.cli.server_request import ask

    return ask(
        url,
        "/v1/cache",
        api_key,
        json.loads,
        method=method,
        body=body,
        timeout_s=_PHRASE_TIMEOUT_S,
    )
