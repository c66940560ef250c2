"""Read the documents of this project for tests."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def table_rows(paper: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose heading row begins with `heading`."""
    text = (ROOT / paper).read_text(encoding="utf-8")
    table = text.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]
