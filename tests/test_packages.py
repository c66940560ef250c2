"""The packages that this project is built on: declared where they are used, used where we say."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("voiceagent_tts", "agents", "benchmarks")


@dataclass(frozen=True, slots=True)
class Package:
    """A package, and what we say of it.

    Attributes:
        name: on the package index.
        module: what is imported.
        declared: the extras that ask for it; "" is the base install.
        rooms: who imports it; none where its room is still to be written.
    """

    name: str
    module: str
    declared: frozenset[str]
    rooms: frozenset[str]


PACKAGES = [
    Package(
        "pipecat-ai",
        "pipecat",
        frozenset({"pipecat"}),
        frozenset({"adapters", "agents", "benchmarks"}),
    ),
    Package(
        "livekit-agents",
        "livekit",
        frozenset({"livekit"}),
        frozenset({"adapters", "agents", "benchmarks"}),
    ),
    Package(
        "torch",
        "torch",
        frozenset({"qwen3"}),
        frozenset({"model", "engine", "alignment", "cli", "benchmarks"}),
    ),
    Package("modelscope", "modelscope", frozenset({"modelscope"}), frozenset({"model"})),
    Package("flash-attn", "flash_attn", frozenset({"flash"}), frozenset()),
    Package("triton", "triton", frozenset({"dev"}), frozenset({"model", "benchmarks"})),
    Package("torchao", "torchao", frozenset({"quantize"}), frozenset({"model"})),
    Package(
        "websockets",
        "websockets",
        frozenset({""}),
        frozenset({"client", "adapters", "benchmarks"}),
    ),
    Package(
        "numpy",
        "numpy",
        frozenset({""}),
        frozenset(
            {"audio", "alignment", "espeak", "model", "engine", "cli", "agents", "benchmarks"}
        ),
    ),
    Package(
        "soundfile",
        "soundfile",
        frozenset({"server", "agents"}),
        frozenset({"audio", "cli", "agents"}),
    ),
    Package("silero-vad", "silero_vad", frozenset({"agents"}), frozenset()),
    Package(
        "pydantic",
        "pydantic",
        frozenset({""}),
        frozenset({"protocol", "config", "server", "cli", "model"}),
    ),
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_is_declared_where_it_is_used(package: Package) -> None:
    """pyproject.toml asks for it, with a floor, in these extras and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    declared = {
        extra
        for extra, requirements in extras.items()
        if any(re.match(rf"{package.name}\s*>=", line) for line in requirements)
    }
    assert declared == package.declared


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_is_imported_where_the_table_says(package: Package) -> None:
    """These rooms import it and no other."""
    assert {room for room, module in imports() if module == package.module} == package.rooms


def imports() -> Iterator[tuple[str, str]]:
    """(room, top-level module) of every import in the sources, also of those in functions."""
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = parts[1] if source == "voiceagent_tts" else source
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for module in _modules_of(node):
                    yield room, module.partition(".")[0]


def _modules_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(str(module))]):
            return [module]
        case _:
            return []
