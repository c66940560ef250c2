"""Download wheels for a GPU machine that has torch, transformers and numpy, but no network.

Fills a folder with the other packages that the benchmarks use, in the versions of this environment:
`engine` with the requirements of this project's command line; `server` with the further
requirements of a server and of the tests. This project runs from its checkout. Sections whose
packages are missing are skipped. Both folders, together with the tree, must stay under 60 MiB,
because such a machine may accept 64; otherwise the program fails. For Linux on x86-64.
"""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console

_PROJECT = "voiceagent-tts"
_ENGINE = (_PROJECT, "soxr", "soundfile", "safetensors", "psutil")
_SERVER = (
    f"{_PROJECT}[server,espeak]",
    "httpx",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
)
"""Requirements of a server and of the tests under `-m gpu`."""
_THERE = (
    "huggingface-hub", "numpy", "packaging", "pyyaml", "regex", "safetensors", "tokenizers",
    "torch", "tqdm", "transformers",
)  # fmt: skip
"""torch, transformers and numpy, and the packages that always accompany them."""
_NOT_USED = ("av", "cryptography", "docopt", "pygments")
"""Large packages that only compressed audio, signed audio and coloured tracebacks need."""
_PARTS = ("engine", "server")
_MOST_BYTES = 60 * 2**20
_PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17)) + (
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)


def needs(roots: Collection[str], python: str, without: Collection[str] = ()) -> dict[str, str]:
    """Return all direct and indirect requirements that are installed in this environment.

    Args:
        roots: requirements: names, optionally with extras.
        python: version of the machine's Python, such as `3.12`.
        without: names at which to stop.

    Returns:
        Name -> version that is installed here. Requirements that are not installed here are left
        out, because their marker applies on that machine only.
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
    """Return the contents of `engine` and of `server`, in exact versions."""
    without = (*_THERE, *_NOT_USED)
    engine = needs(_ENGINE, python, without)
    server = needs(_SERVER, python, without)
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


def main(
    out: Annotated[Path, typer.Option(help="Folder to fill.")] = Path(".wheels"),
    python: Annotated[str, typer.Option(help="Of the GPU machine.")] = "3.12",
) -> None:
    """Download wheels, and list their sizes; the status is 1 where they are too large together."""
    for old in (file for part in _PARTS for file in (out / part).glob("*.whl")):
        old.unlink()  # older versions would count, and be installed
    with Console(stderr=True).status("downloading"):
        for name, requirements in pinned(python).items():
            _download(requirements, out / name, python)
    sizes = {file: file.stat().st_size for file in out.glob("*/*.whl")}
    for file, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
        print(f"{size / 1e6:7.1f} MB  {file.name}")
    tree = tree_bytes(Path(__file__).parents[2])
    megabytes = {
        name: sum(size for file, size in sizes.items() if file.parent.name == name) / 1e6
        for name in _PARTS
    }
    rounded = {name: round(mb, 1) for name, mb in {"tree": tree / 1e6, **megabytes}.items()}
    print(json.dumps({"wheels": len(sizes), "mb": rounded}))
    check_total({"the tree": tree} | {file.name: size for file, size in sizes.items()})


def tree_bytes(root: Path) -> int:
    """Return the bytes of the files that git tracks, and that are copied beside the wheels."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    paths = (root / name for name in listed.split("\0") if name)
    return sum(path.lstat().st_size for path in paths if path.exists())


def check_total(sizes: Mapping[str, int]) -> None:
    """Fail if what is copied together is larger than a GPU machine may accept.

    Args:
        sizes: name of each file, or of the tree -> its bytes.

    Raises:
        SystemExit: they are; the message names the largest.
    """
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        sys.exit(
            f"what is copied has {total / 2**20:.1f} MiB, expected at most "
            f"{_MOST_BYTES / 2**20:.0f} MiB; the largest is {largest}"
        )


if __name__ == "__main__":
    typer.run(main)
