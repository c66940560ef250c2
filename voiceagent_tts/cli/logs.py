"""The log on standard error: coloured lines for people, or JSON lines and nothing else.

With JSON lines, whatever else is written to standard error by libraries, workers or the interpreter
becomes a line of its own, so that a log collector can read all of it.
"""

import atexit
import json
import logging
import os
import sys
import threading
from typing import Any, TextIO

import structlog

from voiceagent_tts.cli.streams import unfailing

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
_END_S = 1.0
"""Longest wait for the last log lines of workers when the process ends."""


def configure_logs(*, is_json: bool, is_quiet: bool = False) -> None:
    """Log one line per event to standard error; of libraries, and if `is_quiet`, only warnings."""
    output = _only_json() if is_json else sys.stderr
    people = structlog.dev.ConsoleRenderer(colors=output.isatty())
    rendered: list[Any] = [
        structlog.processors.format_exc_info,
        *([structlog.processors.JSONRenderer(_json)] if is_json else [_escape_controls, people]),
    ]
    structlog.configure(
        processors=[*_SHARED, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.WARNING if is_quiet else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(output),
    )
    handler = logging.StreamHandler(output)
    without_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED, processors=[without_meta, *rendered]
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    # An answer that fails in its middle is not completed; its line `http_request` has the code.
    return record.msg != "ASGI callable returned without completing response."


def _json(event: dict[str, Any], **options: Any) -> str:
    """JSON as everyone reads it: a number that it lacks, such as infinity, becomes its name."""
    try:
        return json.dumps(event, allow_nan=False, **options)
    except ValueError:
        return json.dumps(json.loads(json.dumps(event, **options), parse_constant=str))


def _escape_controls(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape control characters: a client may choose names with escape sequences."""
    return {
        name: "".join(map(_escaped, value)) if isinstance(value, str) else value
        for name, value in event.items()
    }


def _escaped(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode()


def _only_json() -> TextIO:
    """Make standard error of this process and its children a source of JSON lines.

    Returns:
        Standard error as it was, for lines that are JSON already.
    """
    output = unfailing(os.dup(2))
    reading, writing = os.pipe()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    thread = threading.Thread(target=_log_lines, args=(reading,), daemon=True)
    thread.start()

    def restore() -> None:
        sys.stderr.flush()
        os.dup2(output.fileno(), 2)
        thread.join(_END_S)

    atexit.register(restore)
    return output


def _log_lines(descriptor: int) -> None:
    log = structlog.get_logger(__name__)
    with open(descriptor, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            if text := line.rstrip():
                log.warning("stderr", line=text)
