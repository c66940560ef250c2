"""`audit verify`: whether an audit log is the one that the server wrote."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Check audit logs.", no_args_is_help=True)


@app.callback()
def describe() -> None:
    """Check audit logs."""


@app.command("verify")
def verify_log(file: Annotated[Path, typer.Argument(help="Audit log of a server.")]) -> None:
    """Check every line of an audit log. Exits with 1 and the first bad line if one was changed.

    The last lines can be cut off without a trace: compare the printed hash with the last one that
    the server logged as `audit_log_opened`, or with an earlier run.
    """
    from voiceagent_tts.access.audit import verify

    chain = verify(file)
    sys.stdout.write(f"{file}: {chain.lines} records, last hash {chain.last_hash}\n")
