"""The log: JSON lines and nothing else, or lines that cannot control a terminal."""

import json
import subprocess
import sys

import pytest

STRAYS = r"""
import logging, os, subprocess, sys, warnings
import structlog
from voiceagent_tts.cli.logs import configure_logs

configure_logs(is_json=True)
structlog.get_logger().info("ours", context_id="\x1b[2J", metadata={"x": [float("nan"), 1e999]})
logging.getLogger("uvicorn.error").error("a library")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("asyncio").exception("a task")
print("a print", file=sys.stderr)
warnings.warn("a warning")
subprocess.run([sys.executable, "-c", r"import os; os.write(2, b'a child \xff\n\n')"])
raise SystemExit(main())
"""


def run(code: str, *argv: str) -> list[str]:
    result = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, check=False)
    return result.stderr.decode().splitlines()


def test_every_line_is_json_whoever_writes_it() -> None:
    """Libraries, prints, warnings, children, and the traceback of a mistake at the end."""
    lines = [json.loads(line, parse_constant=pytest.fail) for line in run(STRAYS)]
    logged = [line["event"] for line in lines if line["event"] != "stderr"]
    assert logged == ["ours", "a library", "a task"]
    assert lines[0]["metadata"] == {"x": ["NaN", "Infinity"]}, "which JSON does not have"
    assert "ZeroDivisionError" in next(x for x in lines if x["event"] == "a task")["exception"]
    strays = " ".join(line["line"] for line in lines if line["event"] == "stderr")
    for written in ("a print", "a warning", "a child \\xff", "NameError"):
        assert written in strays
    assert {line["level"] for line in lines} == {"info", "warning", "error"}


ESCAPES = r"""
import logging
import structlog
from voiceagent_tts.cli.logs import configure_logs

configure_logs(is_json=False)
evil = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eturn\x7f"
structlog.get_logger().info("message_refused", context_id=evil, metadata={"a": evil})
structlog.get_logger().info("message_refused", context_id="a\nlevel=error forged")
logging.getLogger("uvicorn.error").error(evil)
"""


def test_a_clients_name_does_not_control_a_terminal() -> None:
    """Its control characters are shown, and a line end makes no line of the log."""
    lines = run(ESCAPES)
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert all("\\x1b[2J" in line for line in (lines[0], lines[2]))


DOWNLOADS = r"""
import logging, sys
from voiceagent_tts.cli.logs import configure_logs
from voiceagent_tts.hub import huggingface_client

if sys.argv[1:]:
    configure_logs(is_json=False)
huggingface_client()
logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
"""


@pytest.mark.parametrize("argv", [[], ["with a log"]])
def test_a_warning_of_the_hubs_client_is_written_once(argv: list[str]) -> None:
    """In a program with a log as a line of it."""
    (line,) = run(DOWNLOADS, *argv)
    assert line.endswith("Retrying in 1s") and ("warning" in line) == bool(argv)
