"""Each extra alone does what it promises: the built wheel in a fresh environment, and a server."""

import json
import re
import shlex
import shutil
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.environments import Environment, build_distributions, install_with_pip, install_with_uv
from testbed.server_process import ServerProcess
from testbed.waiting import PATIENCE_S
from voiceagent_tts import __version__

pytestmark = [pytest.mark.install, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
MAX_DEMO_BYTES = 900_000_000
NO_AGENT = {"torch", "silero-vad", "fastapi", "pyzmq", "espeakng-loader"}
"""Packages that the process of an agent does without."""

TORCH = "torch==2.13.0"
"""The version of the Makefile, which may be its small build."""

Install = Callable[..., Environment]


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution, as a release builds them."""
    return build_distributions(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def install(distributions: tuple[Path, Path], tmp_path: Path) -> Install:
    """Install the wheel with extras into a fresh environment."""

    def with_extras(extras: str, *others: str) -> Environment:
        wheel = f"voiceagent-tts[{extras}] @ {distributions[0].as_uri()}"
        return install_with_uv(tmp_path / extras, wheel, *others)

    return with_extras


def host(server: ServerProcess) -> str:
    """Address of a server without a path."""
    return server.websocket_url.removesuffix("/v1/tts/ws")


@contextmanager
def serving(environment: Environment) -> Iterator[str]:
    """Start an environment's server, and stop it; the address of its sockets, without a path."""
    with environment.start(environment.command, "serve", "--port", "0") as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[1].removesuffix("/v1/tts/ws")
            server.terminate()
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()


def page_of(address: str, path: str) -> bytes:
    """Get a page of a server."""
    url = address.replace("ws:", "http:") + path
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
        return page.read()


def test_both_distributions_are_complete_and_small(distributions: tuple[Path, Path]) -> None:
    """The wheel has every module, the types' markers and the licences; tests stay outside."""
    wheel, source = distributions
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(path.relative_to(ROOT))
        for name in ("voiceagent_tts", "livekit")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    information = f"voiceagent_tts-{__version__}.dist-info"
    assert modules <= inside
    assert "voiceagent_tts/py.typed" in modules
    assert {f"{information}/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= inside
    assert {name.partition("/")[0] for name in inside} == {"voiceagent_tts", "livekit", information}
    with tarfile.open(source) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    assert modules | {"pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= packed
    assert not any(name.startswith(("tests", "benchmarks")) for name in packed)
    # 0.88 MB of it tell text in 27 languages that no voice speaks from what the voices speak.
    assert max(wheel.stat().st_size, source.stat().st_size) < 2_900_000


def test_the_base_install_is_a_client(
    distributions: tuple[Path, Path], tmp_path: Path, served: ServerProcess
) -> None:
    """With pip: the README's client hears a server, and a server here needs what is named."""
    environment = install_with_pip(tmp_path, str(distributions[0]))
    assert environment.packages & (NO_AGENT | {"pipecat-ai", "livekit-agents"}) == set()
    assert environment.run(environment.command, "--version") == f"voiceagent-tts {__version__}\n"
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        if "WordTimestamp" in block
    ]
    code = code.replace("ws://127.0.0.1:8765", host(served))
    assert "'you?' will be heard at" in environment.run(environment.python, "-c", code)
    listed = environment.run(environment.command, "voices", "list", "--url", host(served))
    assert listed.split()[0] == "default"
    refused = environment.attempt(environment.command, "serve")
    assert refused.returncode == 1
    assert "pip install 'voiceagent-tts[server,espeak]'" in refused.stderr


def test_the_advised_command_adds_an_extra_to_a_clone(tmp_path: Path) -> None:
    """It works in another folder than the clone, and leaves the installation that of the clone."""
    environment = install_with_pip(tmp_path, f"--editable={ROOT}")
    refused = environment.attempt(environment.command, "serve")
    (advised,) = re.findall(r"(pip install '.*')$", refused.stderr, re.MULTILINE)
    pip = sys.executable, "-m", "pip", "--python", str(environment.python)
    environment.run(*pip, *shlex.split(advised)[1:])
    environment.run(environment.command, "say", "Hello there.", "-o", "hello.wav")
    code = "import voiceagent_tts; print(voiceagent_tts.__file__)"
    assert environment.run(environment.python, "-c", code).startswith(str(ROOT))


def test_server_and_espeak_serve_and_speak(install: Install) -> None:
    """A temporary server speaks into files, `serve` shows its page, and `doctor` is content."""
    environment = install("server,espeak")
    assert environment.packages & {"torch", "pipecat-ai", "livekit-agents"} == set()
    run, command = environment.run, environment.command
    run(command, "say", "Hello there.", "-o", "hello.wav", "--words", "hello.srt")
    assert (environment.cwd / "hello.wav").stat().st_size > 24_000
    assert "there." in (environment.cwd / "hello.srt").read_text()
    (environment.cwd / "texts").mkdir()
    (environment.cwd / "texts" / "one.txt").write_text("One, two, three.")
    run(command, "batch", "texts", "-o", "sounds", "--format", "mp3")
    assert (environment.cwd / "sounds" / "one.mp3").stat().st_size > 2_000
    assert run(command, "doctor").endswith("This machine can speak.\n")
    with serving(environment) as address:
        assert b"<html" in page_of(address, "/")


def test_hibari_alone_speaks(install: Install) -> None:
    """Natural English without PyTorch or a download; both hosts can be installed beside it."""
    environment = install("server,espeak,hibari")
    assert environment.packages & {"torch", "pipecat-ai", "livekit-agents"} == set()
    said = environment.attempt(environment.command, "say", "Hello.", "-o", "hello.wav")
    assert said.returncode == 0, said.stderr
    assert "hibari, natural English" in said.stderr
    beside = install("server,espeak,hibari,pipecat,livekit")
    assert {"hibari-tts", "pipecat-ai", "livekit-agents"} <= beside.packages


def test_the_oldest_packages_that_are_allowed_serve_both_hosts(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """A lower bound that is too low is a server that does not start on a user's machine."""
    environment, livekit = (
        install_with_uv(
            tmp_path / extras,
            f"voiceagent-tts[{extras}] @ {distributions[0].as_uri()}",
            resolution="lowest-direct",
        )
        for extras in ("server,espeak,hibari,pipecat", "livekit")
    )
    environment.run(environment.command, "say", "Hello there.", "-o", "hello.mp3")
    with serving(environment) as address:
        said = environment.run(environment.python, PROGRAMS / "pipecat_speaks.py", address)
        assert said.split() == ["Hello", "there,", "I", "am", "your", "agent."]
        assert livekit.run(livekit.python, PROGRAMS / "livekit_speaks.py", address)
        assert json.loads(page_of(address, "/livekit/v1/voices"))["voices"]


def test_pocket_alone_has_what_its_engine_imports(install: Install) -> None:
    """The worker's modules load, and without files the answer is one sentence."""
    environment = install("server,espeak,pocket", TORCH)
    assert environment.packages & {"transformers", "pipecat-ai", "livekit-agents"} == set()
    loaded = "voiceagent_tts.worker.__main__, voiceagent_tts.plugins.pocket.load, pocket_tts"
    environment.run(environment.python, "-c", f"import {loaded}")
    assert "extra pocket" in environment.run(environment.command, "doctor")
    refused = environment.attempt(environment.command, "serve", "--engine", "pocket")
    assert refused.returncode == 1
    assert "Pocket TTS english: not on this machine" in refused.stderr


def test_pipecat_alone_speaks_in_a_pipeline(install: Install, served: ServerProcess) -> None:
    """The service sends audio and commits the text, verbatim."""
    environment = install("pipecat")
    assert environment.packages & NO_AGENT == set()
    said = environment.run(environment.python, PROGRAMS / "pipecat_speaks.py", host(served))
    assert said.split() == ["Hello", "there,", "I", "am", "your", "agent."]


def test_livekit_alone_speaks_by_its_plugin(install: Install, served: ServerProcess) -> None:
    """`from livekit.plugins import voiceagent` speaks a whole text and a stream of tokens."""
    environment = install("livekit")
    assert environment.packages & (NO_AGENT | {"pipecat-ai", "sentencex"}) == set()
    said = environment.run(environment.python, PROGRAMS / "livekit_speaks.py", host(served))
    whole_s, stream_s = map(float, said.split())
    assert 0.5 < whole_s < 3 and stream_s == pytest.approx(whole_s, abs=0.3)


def test_agents_alone_has_what_every_agent_imports(install: Install) -> None:
    """All programs in `agents/` start; the embedded voice is there, and torch is not."""
    environment = install("agents")
    assert environment.packages & {"torch", "silero-vad"} == set()
    shutil.copytree(ROOT / "agents", environment.cwd / "agents")
    names = sorted(path.stem for path in (ROOT / "agents").glob("[!_]*.py"))
    imports = "; ".join(f"import agents.{name}" for name in names)
    environment.run(environment.python, "-c", imports)
    assert "console" in environment.run(environment.python, "-m", "agents.livekit_voice", "--help")
    environment.run(environment.command, "say", "Hello there.", "-o", "hello.wav")


@pytest.mark.realtime
def test_the_demo_runs_from_the_wheel_in_an_empty_folder(install: Install) -> None:
    """It needs less than 0.9 GB and no torch; every cut of the history is within a word."""
    environment = install("demo")
    assert environment.packages & {"torch", "silero-vad", "livekit-agents"} == set()
    assert environment.size_bytes < MAX_DEMO_BYTES
    printed = environment.run(environment.command, "demo")
    summary = json.loads((environment.cwd / "out" / "demo.json").read_text())["summary"]
    assert f"{summary['exact']} of {summary['cuts']} exact" in printed.splitlines()[-1]
    assert summary["cuts"] == summary["within_one"] >= 10
    assert "open http://127.0.0.1:8765/ in a browser" in printed
    for name in ("demo.wav", "demo.png"):
        assert (environment.cwd / "out" / name).stat().st_size > 100_000
