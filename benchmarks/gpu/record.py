"""The figures of a run: one JSON file, replaced whole whenever a figure is finished.

A process can be killed at any moment: what was finished is in the file, and is never changed again.
One process at a time writes a file. Standard library only.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS, LOG = "results.json", "log.txt"


@dataclass(frozen=True, slots=True)
class Record:
    """The results of a run, in the file `path`, which appears with the first figure."""

    path: Path

    def read(self) -> dict[str, Any]:
        """Return the results: `sections` -> name -> `state`, `took_s`, `figures`."""
        return json.loads(self.path.read_text()) if self.path.exists() else {"sections": {}}

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return the finished figures of every section that has some."""
        sections = self.read()["sections"]
        return {name: entry["figures"] for name, entry in sections.items() if entry["figures"]}

    def state(self, section: str) -> str:
        """Return how a section ended: `done`, another word, or nothing where it never ran."""
        return self.read()["sections"].get(section, {}).get("state", "")

    def describe(self, card: str) -> None:
        """Set the card of the whole run."""
        self._write(self.read() | {"card": card})

    def set_state(self, section: str, state: str, took_s: float = 0.0) -> None:
        """Note how a section ended, and add to the seconds that it has taken."""
        known = self.read()
        entry = _entry(known, section)
        entry["state"] = state
        entry["took_s"] = round(entry["took_s"] + took_s, 1)
        self._write(known)

    def keep(self, section: str, path: tuple[str, ...], value: Any) -> None:
        """Add a finished figure, unless it is already there.

        Args:
            section: section that measured it.
            path: names of the objects that contain it, then its own name.
            value: any JSON value.
        """
        known = self.read()
        place = _entry(known, section)["figures"]
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if path[-1] not in place:
            place[path[-1]] = value
            self._write(known)

    def _write(self, known: dict[str, Any]) -> None:
        partial = self.path.with_suffix(".partial")
        with partial.open("w") as file:
            file.write(json.dumps(known, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)


def _entry(known: dict[str, Any], section: str) -> dict[str, Any]:
    return known["sections"].setdefault(section, {"state": "begun", "took_s": 0.0, "figures": {}})
