"""Wheels for a GPU machine that has torch, transformers and numpy, and no network.

Fills a folder with what else the benchmarks need there, in the versions of this environment:
`engine` with what rows of a model take, this project itself among it; `server` with what a server
takes beside; `peers` with the packages that `benchmarks.engine.peers` compares. A machine that
takes only so much at a time can be given `engine` and one of the others. For Linux on x86-64.
"""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console

from benchmarks.engine.peer_packages import FASTER, OFFICIAL

_PROJECT = "voiceagent-tts"
_ENGINE = (_PROJECT, "soxr", "soundfile", "safetensors", "psutil")
_SERVER = (
    f"{_PROJECT}[server]",
    "httpx",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "hypothesis",
)
"""With what the tests under `-m gpu` use."""
_THERE = (
    "huggingface-hub", "numpy", "packaging", "pyyaml", "regex", "safetensors", "tokenizers",
    "torch", "tqdm", "transformers",
)  # fmt: skip
"""What torch, transformers and numpy are, or never come without."""
_PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17)) + (
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)


def needs(roots: Collection[str], python: str, without: Collection[str] = ()) -> dict[str, str]:
    """What packages of this environment need in turn, they themselves included.

    Args:
        roots: requirements: names, maybe with extras.
        python: version of the machine's Python, as `3.12`.
        without: names at which to stop.

    Returns:
        Name -> version that is installed here. What is not installed here is left out: its marker
        holds on that machine alone.
    """
    found: dict[str, str] = {}
    waiting = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if name in without or key in seen:
            continue
        seen.add(key)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = package.version
        waiting += _requirements(package, requirement.extras, python)
    return found


def _requirements(
    package: importlib.metadata.Distribution, extras: Collection[str], python: str
) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or _holds(requirement.marker, extras, python):
            yield requirement


def _holds(marker: Marker, extras: Collection[str], python: str) -> bool:
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
    }
    return any(marker.evaluate({**machine, "extra": extra}) for extra in ("", *extras))


def pinned(python: str) -> dict[str, list[str]]:
    """What goes into `engine` and into `server`, in exact versions."""
    engine = needs(_ENGINE, python, without=_THERE)
    server = needs(_SERVER, python, without=_THERE)
    return {
        "engine": _exact(engine),
        "server": _exact({name: server[name] for name in server if name not in engine}),
    }


def _exact(versions: dict[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in versions.items() if name != _PROJECT]


def _download(requirements: Collection[str], folder: Path, python: str) -> None:
    target = [f"--platform={platform}" for platform in _PLATFORMS]
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
            f"--python-version={python}", "--implementation=cp", *target, "-d", str(folder),
            *requirements,
        ],
        check=True,
        stdout=sys.stderr,
    )  # fmt: skip


def _build_project(folder: Path) -> None:
    """Its metadata is what `import voiceagent_tts` looks for; its code is that of the checkout."""
    root = str(Path(__file__).parents[2])
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), root]
    subprocess.run(argv, check=True, stdout=sys.stderr)


def main(
    out: Annotated[Path, typer.Option(help="Folder to fill.")] = Path(".wheels"),
    python: Annotated[str, typer.Option(help="Of the GPU machine.")] = "3.12",
) -> None:
    """Download wheels, and list what they weigh."""
    with Console(stderr=True).status("downloading"):
        for name, requirements in pinned(python).items():
            _download(requirements, out / name, python)
        _build_project(out / "engine")
        for requirement in {*OFFICIAL.requirements, *FASTER.requirements}:
            _download([requirement], out / "peers", python)  # together pip would refuse them
    sizes = {file.name: file.stat().st_size for file in out.rglob("*.whl")}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
        print(f"{size / 1e6:7.1f} MB  {name}")
    folders = {name: _megabytes(out / name) for name in ("engine", "server", "peers")}
    print(json.dumps({"wheels": len(sizes), "mb": folders}))


def _megabytes(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in folder.glob("*.whl")) / 1e6, 1)


if __name__ == "__main__":
    typer.run(main)
