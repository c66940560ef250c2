"""`keys create`, `keys revoke` and `keys list`: the API keys of a file or of Redis."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.mistakes import mistake_in

if TYPE_CHECKING:
    from voiceagent_tts.plugins.keys.key_store import KeyStore

_T = TypeVar("_T")

app = typer.Typer(help="Create, revoke and list the API keys of a server.", no_args_is_help=True)


def add_commands(commands: typer.Typer) -> None:
    """Add `keys`."""
    commands.add_typer(app, name="keys")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for; shown by `keys list`.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="speak, voices:write or admin. May be repeated. [default: speak]"),
    ] = None,
    limits: Annotated[
        str,
        typer.Option(
            help="Limits of this key, such as contexts=20,contexts_per_s=5,"
            "chars_per_minute=20000,audio_s_per_day=36000. [default: the setting `key_limits`]"
        ),
    ] = "",
) -> None:
    """Create a key and print it. It is shown only this once; its hash is stored."""
    from voiceagent_tts.plugins.keys.keys import make_key

    new = make_key(name, _scopes(scope or ["speak"]), _limits(limits))
    _with_store(lambda store: store.change(lambda document: document.with_key(new.key)))
    try:
        typer.echo(f"created key {new.key.id}; it is shown only this once:", err=True)
        sys.stdout.write(f"{new.secret}\n")
        sys.stdout.flush()
    except OSError:  # such as a full disk: a key that was not shown is of no use
        _with_store(lambda store: store.change(lambda document: document.without(new.key.id)))
        raise


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id; `keys list` shows it.")],
) -> None:
    """Revoke a key. Running servers refuse it and close its sockets within two seconds."""
    _with_store(lambda store: store.change(lambda document: document.without(key_id)))
    typer.echo(f"revoked key {key_id}", err=True)


@app.command("list")
def list_keys() -> None:
    """List the keys, one per line: id, scopes, limits, creation time and name."""
    from voiceagent_tts.plugins.keys.key_store import read_document

    for key in _with_store(read_document).keys:
        scopes = ",".join(key.listed_scopes)
        created = key.created_at.isoformat()
        sys.stdout.write(f"{key.id}  {scopes}  {str(key.limits) or '-'}  {created}  {key.name}\n")


def _with_store(action: "Callable[[KeyStore], Awaitable[_T]]") -> _T:
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.plugins.keys.key_store import open_store

    location = read_settings({}).keys
    if location is None:
        raise InvalidRequestError(
            "expected the location of the keys in VOICEAGENT_TTS_KEYS, got none; set it to a file "
            "or to redis://HOST:PORT/DB, as for the server"
        )

    async def act(location: str) -> _T:
        async with contextlib.AsyncExitStack() as stack:
            store = open_store(location)
            stack.push_async_callback(store.close)
            return await action(store)

    return asyncio.run(act(location))


def _scopes(names: list[str]) -> Any:
    from voiceagent_tts.plugins.keys.keys import Scope

    try:
        return frozenset(Scope(name) for name in names)
    except ValueError:
        known = ", ".join(Scope)
        raise InvalidRequestError(
            f"--scope: expected {known}, got {', '.join(names)[:64]!r}"
        ) from None


def _limits(text: str) -> Any:
    from pydantic import ValidationError

    from voiceagent_tts.settings.access import Quota

    try:
        return Quota.model_validate(text)
    except ValidationError as error:
        field, mistake = mistake_in(error)
        raise InvalidRequestError(
            f"--limits: {field or 'the value'}: {mistake}; expected NAME=NUMBER, separated by "
            f"commas, with the names {', '.join(Quota.model_fields)}"
        ) from None
