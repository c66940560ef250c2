"""How many operations does a GPU launch for a frame, and what do they move?

The passes of a frame, prefills and calls of the codec, in the structure of a published model,
run on tensors that have shapes and no values; `pass_work` says what is counted. Runs anywhere;
fused kernels need Triton, but no GPU.
"""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.engine.pass_work import TABLE, all_work


def main(
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Also replace the table that tests compare with.")
    ] = False,
) -> None:
    """Count the operations of every pass."""
    found = all_work()
    table = Table("pass", "launches", "MB")
    for name, totals in found.items():
        table.add_row(name, *(f"{number:,}" for number in totals.values()))
    Console().print(table)
    if save:
        TABLE.write_text(json_format.dumps(found, indent=2) + "\n")
    publish({"passes": found, **provenance()}, json)


if __name__ == "__main__":
    typer.run(main)
