"""Whatever starts a process that goes on by itself takes it along when it ends, however it ends."""

import ast
import signal
from pathlib import Path

import pytest

from testbed.missing import require_program
from testbed.parents import ends_with_its_parent

ROOT = Path(__file__).parents[1]
SERVER = """
from testbed.server_process import serving
with serving() as server:
    tell(server.process.pid, *(each.pid for each in server.worker_processes()))
"""
SUSPENDED_REDIS = """
from testbed.ports import free_ports
from testbed.redis_process import RedisProcess
with RedisProcess(free_ports(1)[0]) as redis, redis.suspended():
    tell(redis._process.pid)
"""
READERS = {
    "testbed/fork_server.py": "reads a socket",
    "voiceagent_tts/plugins/clones/cloner_processes.py": "the cloner asks for the signal itself",
    "voiceagent_tts/plugins/lexicons/reader.py": "reads a pipe",
    "voiceagent_tts/synthesizer/workers.py": "reads a pipe: tests/worker/test_worker.py",
}
"""Files whose children end by themselves when a pipe of their parent's closes."""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_no_child_is_left(by: signal.Signals, tmp_path: Path) -> None:
    """A server and its engine would keep their port and memory for ever."""
    assert ends_with_its_parent(SERVER, by, tmp_path)


@pytest.mark.services
def test_no_suspended_service_is_left(tmp_path: Path) -> None:
    """It hears no request to end."""
    require_program("redis-server")
    assert ends_with_its_parent(SUSPENDED_REDIS, signal.SIGKILL, tmp_path)


def test_whatever_starts_a_process_says_how_it_ends() -> None:
    """Each call has `preexec_fn=following(...)`, or is one of the few that need none."""
    folders = ("agents", "benchmarks", "examples", "testbed", "tools", "voiceagent_tts")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    without = {str(file.relative_to(ROOT)) for file in files if starts_without(file.read_text())}
    assert without == READERS.keys()


def starts_without(source: str) -> bool:
    """Whether some call of a program starts a process that does not follow its parent."""
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)]
    return any(
        ast.unparse(call.func).endswith(("Popen", "create_subprocess_exec"))
        and "Following" not in ast.unparse(call)
        for call in calls
    )
