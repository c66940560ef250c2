"""Download wheels for a GPU machine that has torch, transformers and numpy, but no network.

Fills a folder with the other packages that the benchmarks use, in the versions of this environment:
the requirements of a server and of the tests. This project runs from its checkout. Sections whose
packages are missing are skipped. The folder, together with the tree, must stay under 60 MiB,
because such a machine may accept 64; otherwise the program fails. For Linux on x86-64.
"""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PROJECT = "voiceagent-tts"
_WANTED = (
    f"{_PROJECT}[server,espeak]",
    "soundfile", "psutil", "httpx",
    "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis",
)  # fmt: skip
_THERE = (
    "huggingface-hub", "numpy", "packaging", "pyyaml", "regex", "safetensors", "tokenizers",
    "torch", "tqdm", "transformers",
)  # fmt: skip
"""torch, transformers and numpy, and the packages that always accompany them."""
_NOT_USED = ("av", "cryptography", "docopt", "pygments")
"""Large packages that only compressed audio, signed audio and coloured tracebacks need."""
_MOST_BYTES = 60 * 2**20
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17)),
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)


def needs(python: str) -> dict[str, str]:
    """Return name -> installed version of all direct and indirect requirements.

    Those that are not installed here are left out, because their marker applies elsewhere only.

    Args:
        python: version of the machine's Python, such as `3.12`.
    """
    found: dict[str, str] = {}
    waiting = [Requirement(line) for line in _WANTED]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = name, frozenset(requirement.extras)
        if key in seen or name in (*_THERE, *_NOT_USED):
            continue
        seen.add(key)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = package.version
        waiting += _requirements(package, requirement, python)
    found.pop(_PROJECT, None)
    return found


def _requirements(
    package: importlib.metadata.Distribution, wanted: Requirement, python: str
) -> Iterator[Requirement]:
    machine = {"python_version": python, "python_full_version": f"{python}.0"}
    for requirement in map(Requirement, package.requires or ()):
        extras = ("", *wanted.extras)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**machine, "extra": each}) for each in extras):
            yield requirement


def main(
    out: Annotated[Path, typer.Option(help="Folder to fill.")] = Path(".wheels"),
    python: Annotated[str, typer.Option(help="Of the GPU machine.")] = "3.12",
) -> None:
    """Download wheels, and list their sizes; the status is 1 where they are too large together."""
    for old in out.glob("*.whl"):
        old.unlink()  # older versions would count, and be installed
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
            f"--python-version={python}", "--implementation=cp", "-d", str(out),
            *(f"--platform={platform}" for platform in _PLATFORMS),
            *(f"{name}=={version}" for name, version in needs(python).items()),
        ],
        check=True,
        stdout=sys.stderr,
    )  # fmt: skip
    sizes = {file.name: file.stat().st_size for file in out.glob("*.whl")}
    for name in sorted(sizes, key=lambda name: -sizes[name])[:12]:
        print(f"{sizes[name] / 1e6:7.1f} MB  {name}")
    tree = _tree_bytes(Path(__file__).parents[2])
    megabytes = {"tree": round(tree / 1e6, 1), "wheels": round(sum(sizes.values()) / 1e6, 1)}
    print(json.dumps({"wheels": len(sizes), "mb": megabytes}))
    check_total({"the tree": tree, **sizes})


def _tree_bytes(root: Path) -> int:
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
