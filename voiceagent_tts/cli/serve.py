"""`voiceagent-tts serve`: settings, logs, and the server in the foreground."""

import asyncio
import logging
import sys
from tomllib import TOMLDecodeError
from typing import Any

import structlog
from pydantic import ValidationError
from rich.console import Console

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.server.serve import RunningServer, serve


def run_server(given: dict[str, Any]) -> None:
    """Serve with settings from the command line, the environment and the file.

    Raises:
        InvalidRequestError: a setting is wrong, or the address is taken.
        EngineError: the engine cannot start.
    """
    settings = read_settings(given)
    configure_logs(is_json=settings.log_json)
    console = Console(stderr=True)
    try:
        with console.status(f"starting the {settings.engine} engine") as status:

            def say_ready(server: RunningServer) -> None:
                status.stop()
                # Standard output carries one line, for whoever started us and waits for it.
                sys.stdout.write(f"ready {server.websocket_url}\n")
                sys.stdout.flush()
                console.print(f"API documentation: {server.url}/docs", highlight=False)

            asyncio.run(serve(settings, say_ready))
    except OSError as error:
        raise InvalidRequestError(
            f"cannot bind {settings.host}:{settings.port} ({error.strerror}); "
            "choose another --port, or 0 for a free one"
        ) from error


def read_settings(given: dict[str, Any]) -> Settings:
    """Settings with `given` before all other sources.

    Raises:
        InvalidRequestError: a value is wrong; the message names the setting.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidRequestError(_sentence(error)) from None
    except TOMLDecodeError as error:
        raise InvalidRequestError(f"the settings file is not TOML: {error}") from None
    except ValueError as error:
        raise InvalidRequestError(f"settings: {error}") from None


def _sentence(error: ValidationError) -> str:
    """The first mistake, without the value, which may be a key."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{place}: there is no such setting"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def configure_logs(*, is_json: bool, is_quiet: bool = False) -> None:
    """One line an event on standard error; uvicorn's own, and all when quiet, from warnings on."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    renderer = (
        structlog.processors.JSONRenderer()
        if is_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.WARNING if is_quiet else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
