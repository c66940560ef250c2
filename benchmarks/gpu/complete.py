"""Check that a run is complete: `python -m benchmarks.gpu.complete FOLDER`.

Standard library only.
"""

import sys
from pathlib import Path

from benchmarks.gpu.record import MOST_FILES, RESULTS, Record


def check(folder: Path) -> str:
    """Return in words what a finished run holds.

    Raises:
        ValueError: a section neither ended nor was skipped, or the folder has too many files.
    """
    files = sorted(file.name for file in folder.iterdir())
    if len(files) > MOST_FILES:
        raise ValueError(f"expected at most {MOST_FILES} files in {folder}, got {', '.join(files)}")
    states = {
        name: one["state"] for name, one in Record(folder / RESULTS).read()["sections"].items()
    }
    done = sum(state == "done" for state in states.values())
    unfinished = {
        name: state
        for name, state in states.items()
        if state != "done" and not state.startswith("skipped")
    }
    if unfinished or not done:
        raise ValueError(f"expected every section to be done, got {unfinished or 'no section'}")
    return f"{len(files)} files; {done} sections done"


if __name__ == "__main__":
    try:
        print(check(Path(sys.argv[1])))
    except ValueError as error:
        sys.exit(str(error))
