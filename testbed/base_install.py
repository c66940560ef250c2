"""Emulate the base install (`pip install voiceagent-tts` without extras) by links to packages."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def make_base_install(folder: Path) -> None:
    """Fill `folder` with the package and its requirements without extras."""
    (folder / "voiceagent_tts").symlink_to(ROOT / "voiceagent_tts")
    for name in _needed("voiceagent-tts", set()):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            link, target = (
                folder / file.parts[0],
                Path(str(distribution.locate_file(file.parts[0]))),
            )
            if file.parts[0] != ".." and not link.exists():
                link.symlink_to(target)


def run_in_base_install(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `python *argv` where nothing but the base install can be imported."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-S", *argv],  # -S: without the site-packages of this environment
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def _needed(name: str, seen: set[str]) -> Iterator[str]:
    if name in seen:
        return
    seen.add(name)
    yield name
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from _needed(requirement.name, seen)
