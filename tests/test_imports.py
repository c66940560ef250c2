"""Which modules load which others, in fresh interpreters."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from testbed.base_install import make_base_install, run_in_base_install
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.plugins.clones.clone_files import write_file

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "voiceagent_tts"
BASE = TESTS / "reference" / "base-0b6"
HEAVY = {"torch", "fastapi", "zmq", "uvicorn", "soundfile", "av", "soxr", "espeakng_loader"}

CPU_OF_HELP = """
import json, resource, subprocess, sys
subprocess.run([sys.executable, "-m", "voiceagent_tts", "--help"], check=True, stdout=-3)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps(usage.ru_utime + usage.ru_stime))
"""


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def imports_of(path: Path) -> Iterator[str]:
    """Yield the names that a module imports anywhere: in functions, and for types alone, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_modules_import_each_other() -> None:
    """The modules of the package have an order; none needs a later one, not even its types."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    imports = {
        name: {each for each in imports_of(path) if each in modules and each != name}
        for name, path in modules.items()
    }
    TopologicalSorter(imports).prepare()  # raises `CycleError`, which names the circle


@pytest.mark.parametrize(
    "module", ["voiceagent_tts", "voiceagent_tts.client", "voiceagent_tts.cli"]
)
def test_the_light_modules_load_nothing_heavy(module: str) -> None:
    """Importing the client loads neither torch nor the server."""
    assert modules_after(f"import {module}") & HEAVY == set()


@pytest.mark.parametrize(
    "module", ["voiceagent_tts.plugins.speech.containers", "voiceagent_tts.server.serve"]
)
def test_a_server_that_sends_pcm_needs_no_av(module: str) -> None:
    """FFmpeg's libraries are 35 MB; only compressed formats and changed speeds load them."""
    assert "av" not in modules_after(f"import {module}")


def test_an_engine_needs_only_torch_transformers_and_numpy() -> None:
    """A rented GPU machine has none of this project's other packages.

    Without Triton plain kernels run, and requesting fused ones is an error that names it.
    Transformers loads slowly: a Base model loads, and clones a timbre, without it.
    """
    absent = "av pydantic pydantic_settings sentencex soundfile soxr structlog websockets zmq"
    code = f"""if True:
        import sys
        absent = {absent!r}.split()
        sys.modules.update(dict.fromkeys([*absent, "triton"]))
        import torch
        import voiceagent_tts.engine.load
        from voiceagent_tts.model.kernels import find_fault, make_operations
        from voiceagent_tts.model.attention import attend_sdpa
        from voiceagent_tts.engine.generate import SamplingParams, make_samplers
        make_operations("plain", attend_sdpa)
        make_samplers([SamplingParams()])
        for name in absent:  # reading a model's folder needs pydantic
            del sys.modules[name]
        from pathlib import Path
        from testbed.random_weights import PUBLISHED
        from voiceagent_tts.model.checkpoint import load_checkpoint
        from voiceagent_tts.plugins.recordings.clone import clone_voice
        base = Path({str(BASE)!r})
        load_checkpoint(base)
        clone_voice(base, torch.zeros(24_000))
        assert "transformers" not in sys.modules
        torch.version.cuda = "13.0"
        print(find_fault(PUBLISHED.talker_config, torch.bfloat16, torch.device("cuda")))
    """
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("ModuleNotFoundError: import of triton halted")


def test_stored_voices_are_managed_on_the_base_install(tmp_path: Path) -> None:
    """They are exported and removed without the packages of a server."""
    make_base_install(tmp_path)
    voices = VoiceFolder(tmp_path / "voices")
    write_file(voices.file("anna"), b"voice")
    program = (
        f"import os, sys; os.environ['VOICEAGENT_TTS_VOICES_FOLDER'] = {str(voices.path)!r}\n"
        "from voiceagent_tts.cli import main; sys.argv[0] = 'voiceagent-tts'; main()"
    )
    for argv in (("export", "anna", "a.safetensors"), ("remove", "anna")):
        result = run_in_base_install(tmp_path, "-c", program, "voices", *argv)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "a.safetensors").read_bytes() == b"voice"
    assert voices.names() == []


def test_the_client_runs_on_the_base_install(tmp_path: Path) -> None:
    """Without any extra the client and the command line can be imported."""
    make_base_install(tmp_path)
    result = run_in_base_install(
        tmp_path, "-c", "import voiceagent_tts.client, voiceagent_tts.cli.say; import torch"
    )
    assert result.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.parametrize(
    "absent",
    [
        pytest.param("", id="Unix"),
        pytest.param("fcntl grp pty pwd resource syslog termios tty", id="Windows"),
    ],
)
def test_client_and_adapters_load_no_server(absent: str) -> None:
    """An agent's process loads its host, but neither torch nor the server's packages.

    Windows has no Unix modules in its standard library; psutil needs one on Linux only.
    """
    loaded = modules_after(f"""if True:
        import psutil, sys
        sys.modules.update(dict.fromkeys({absent!r}.split()))
        import voiceagent_tts.client
        import voiceagent_tts.cli.say
        import livekit.plugins.voiceagent
        assert "pipecat" not in sys.modules
        import voiceagent_tts.adapters.pipecat""")
    assert {"livekit", "pipecat"} <= loaded
    assert loaded & {"torch", "fastapi", "zmq"} == set()


def test_help_takes_less_than_half_a_second_of_cpu() -> None:
    """`voiceagent-tts --help` answers at once, however many packages are installed.

    Other programs on the same core only ever add to what it takes, so its quickest run counts.
    """
    argv = [sys.executable, "-c", CPU_OF_HELP]
    runs_s = (
        json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    )
    assert any(run_s < 0.5 for run_s in runs_s)
