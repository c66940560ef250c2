"""The program itself: its version, and the extras that it names where a package is missing."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

from testbed.command_line import EMBEDDED, CommandHere
from voiceagent_tts import __version__
from voiceagent_tts.cli import app
from voiceagent_tts.cli.arguments import finite

ROOT = Path(__file__).parents[2]


def test_the_version_is_printed(command_here: CommandHere) -> None:
    """`--version` needs no command."""
    shown = command_here("--version")
    assert (shown.status, shown.output) == (0, f"voiceagent-tts {__version__}\n")


@pytest.mark.parametrize("command", ["models list >&-", "say -o a.wav A. 2>&-"])
def test_a_closed_output_is_no_error(command: str, tmp_path: Path) -> None:
    """A shell can close a standard output; what is printed is lost, and nothing fails."""
    shown = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m voiceagent_tts {command}', sys.executable],
        cwd=tmp_path,
        env=os.environ | EMBEDDED | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    assert shown.stdout + shown.stderr == b""


def test_a_demo_without_its_packages_names_its_extra(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says how to install it."""
    for module in [name for name in sys.modules if name.startswith("voiceagent_tts.plugins.demo.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "loguru", None)  # what Pipecat logs with
    refused = command_here("demo")
    assert refused.status == 1
    assert refused.errors == (
        "voiceagent-tts: the package 'loguru' is missing. Install the extras that this command "
        "needs: pip install 'voiceagent-tts[demo]'\n"
    )


def test_every_decimal_option_refuses_nan_and_infinity(command_here: CommandHere) -> None:
    """NaN is neither below a minimum nor above a maximum, so ranges let it pass."""
    checks = [
        option.callback
        for command in _commands(app)
        for hint in get_type_hints(command, include_extras=True).values()
        if getattr(hint, "__origin__", hint) is float
        for option in hint.__metadata__
    ]
    assert len(checks) > 5
    assert set(checks) == {finite}
    refused = command_here("bench", "latency", "--think-s", "inf")
    assert (refused.status, refused.output) == (2, "")
    assert "expected a finite number" in refused.errors


def _commands(group: typer.Typer) -> Iterator[Callable[..., Any]]:
    yield from (each.callback for each in group.registered_commands if each.callback)
    for each in group.registered_groups:
        assert each.typer_instance is not None
        yield from _commands(each.typer_instance)
