"""Hints that say how to install missing packages."""

import re
import tomllib
from pathlib import Path

import pytest

from voiceagent_tts.cli.missing_packages import extras_with, packages_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("module", "command", "extras"),
    [
        ("httpx", "serve", ("server", "espeak")),
        ("httpx", "finetune", ("train",)),
        ("aiohttp", "bench", ("bench",)),
        ("psutil", "bench", ("bench",)),
        ("jiwer", "bench", ("bench",)),
        ("redis", "keys", ("server", "espeak")),
        ("opentelemetry.sdk", "serve", ("server", "espeak")),
        ("yaml", "serve", ("server", "espeak", "pocket")),
        ("torch", "verify", ("server", "qwen3")),
        ("huggingface_hub", "models", ("server", "qwen3")),
        ("pipecat", "demo", ("demo",)),
        ("matplotlib", "demo", ("demo",)),
        ("loguru", "demo", ("demo",)),
        ("loguru", "bench", ("pipecat",)),
        ("tokenizers", "serve", ("server", "qwen3")),
        ("janome", "serve", ("japanese",)),
        ("fastapi", "bench", ("server", "espeak")),
    ],
)
def test_a_missing_module_names_its_extra(
    module: str, command: str, extras: tuple[str, ...]
) -> None:
    """The extra that has the package, and what is of no use without it; never one that lacks it."""
    assert extras_with(module, command) == extras


def test_every_package_of_an_extra_is_found_in_it() -> None:
    """No extra is forgotten: each of its packages leads to an extra that requires it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extra, requirements in declared["optional-dependencies"].items():
        for requirement in requirements if extra != "dev" else ():
            package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            if package in ("voiceagent-tts", "nvidia-ml-py"):
                continue
            found = extras_with(package.replace("-", "_"), "serve")
            assert any(package in set(packages_of(each)) for each in found), package


def test_every_extra_of_the_papers_exists() -> None:
    """pyproject.toml declares the extras that documents and hints name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    papers = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for paper in papers
        for group in re.findall(r"(?:voiceagent-tts|'\.)\[([\w,]+)\]", paper.read_text("utf-8"))
        for name in group.split(",")
    }
    assert named and named <= extras["optional-dependencies"].keys()
