"""Dependencies: every declared package is used, and every import is declared."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("voiceagent_tts", "agents", "benchmarks")
EVERYTHING = (*SOURCES, "livekit", "testbed", "tools", "tests")


REACHED_THROUGH = {
    "flash-attn": ("voiceagent_tts/model/attention.py", "flash_attn_with_kvcache"),
    "ray": ("deploy/ray_serve.py", "from ray import serve"),
    "opentelemetry-exporter-otlp-proto-http": ("voiceagent_tts/tracing.py", "OTLPSpanExporter"),
    "nvidia-ml-py": ("voiceagent_tts/engine/metrics.py", "torch.cuda.utilization"),
    "pytest-timeout": ("pyproject.toml", "timeout = "),
    "python-multipart": ("voiceagent_tts/plugins/clones/voice_routes.py", "UploadFile"),
    "ruff": ("scripts/lint", "ruff check"),
    "pyright": ("scripts/lint", "pyright"),
    "import-linter": ("scripts/lint", "lint-imports"),
    "build": ("testbed/environments.py", '"-m", "build"'),
    "tensorboard": ("voiceagent_tts/plugins/training/monitor.py", "torch.utils.tensorboard"),
    "uv": ("testbed/environments.py", '"uv", "venv"'),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "check-jsonschema": ("tests/test_compose.py", "check_jsonschema"),
}
"""Packages without an import -> the file that uses them indirectly, and the words that do it."""

BROUGHT_BY = {
    "faster_whisper": "voiceagent_tts/plugins/bench/quality/transcribers.py",
    "modelscope": "voiceagent_tts/hub.py",
    "opentelemetry": "opentelemetry-sdk",
    "pydantic_core": "pydantic",
    "aiortc": "pipecat-ai[webrtc]",
    "packaging": "pytest",
    "fontTools": "matplotlib",
    "sentencepiece": "pocket-tts",
    "qwen_tts": "benchmarks/engine/official_speaker.py",
}
"""Modules of packages that are not declared -> the package or program that installs them."""

MODULES = {
    "mkdocs-material": "material",
    "python-multipart": "python_multipart",
    "silero-vad": "silero_vad",
    "c2pa-python": "c2pa",
    "espeakng-loader": "espeakng_loader",
    "huggingface-hub": "huggingface_hub",
    "livekit-agents": "livekit.agents",
    "opentelemetry-proto": "opentelemetry.proto",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "pipecat-ai": "pipecat",
    "hibari-tts": "hibari",
    "pocket-tts": "pocket_tts",
    "prometheus-client": "prometheus_client",
    "pydantic-settings": "pydantic_settings",
    "pytest-asyncio": "pytest_asyncio",
    "pytest-xdist": "xdist",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
}
"""Package -> the module that it provides, if the names differ."""


@pytest.mark.parametrize("name", sorted(REACHED_THROUGH))
def test_a_package_without_an_import_is_reached_where_the_table_says(name: str) -> None:
    """The file in the table contains the words that load or run the package."""
    file, words = REACHED_THROUGH[name]
    assert words in (ROOT / file).read_text(encoding="utf-8")


def test_every_declared_package_is_used() -> None:
    """Every dependency in pyproject.toml is imported, loaded or run."""
    imported = {module for _, module in imports(EVERYTHING)}
    unused = {
        name
        for name in declared_packages()
        if name not in REACHED_THROUGH
        and not any(within(module, module_of(name)) for module in imported)
    }
    assert unused == set()


def test_every_import_is_declared() -> None:
    """Every imported module is installed by some extra."""
    known = {module_of(name) for name in declared_packages()} | set(BROUGHT_BY) | set(EVERYTHING)
    undeclared = {
        (room, module)
        for room, module in imports(EVERYTHING)
        if module.partition(".")[0] not in sys.stdlib_module_names
        and not module.startswith("livekit")  # one namespace of many packages
        and not any(within(module, each) for each in known)
    }
    assert undeclared == set()


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def declared_packages() -> set[str]:
    names = {
        re.split(r"[\s\[>=<;]", line, maxsplit=1)[0]
        for requirements in extras().values()
        for line in requirements
    }
    return names - {"voiceagent-tts"}


def module_of(package: str) -> str:
    if package.startswith("livekit-plugins-"):
        return f"livekit.plugins.{package.removeprefix('livekit-plugins-')}"
    return MODULES.get(package, package)


def within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(f"{parent}.")


def imports(sources: Iterable[str]) -> set[tuple[str, str]]:
    return set().union(*map(_imports_of, sources))


@cache
def _imports_of(source: str) -> frozenset[tuple[str, str]]:
    return frozenset(_read_imports(source))


def _read_imports(source: str) -> Iterator[tuple[str, str]]:
    for path in (ROOT / source).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        room = parts[1] if source == "voiceagent_tts" else source
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in _modules_of(node):
                yield room, module


def _modules_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{alias.name}" for alias in names]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(str(module))]):
            return [module]
        case _:
            return []
