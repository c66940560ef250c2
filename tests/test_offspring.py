"""Whatever starts a process that goes on by itself takes it along when it ends, however it ends."""

import ast
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.missing import require_program
from testbed.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
TELL = """
import sys, time

def tell(*pids):
    print(*pids, flush=True)
    time.sleep(600)
"""
STARTERS = {
    "a server of the testbed": """
from testbed.server_process import serving
with serving() as server:
    tell(server.process.pid, *(each.pid for each in server.worker_processes()))
""",
    "a server that computes slowly": """
from testbed.server_process import serving
with serving(throttle='{"rtf": 0.5}') as server:
    tell(server.process.pid, *(each.pid for each in server.worker_processes()))
""",
    "a command": """
import asyncio, pathlib
from testbed.command_line import start
async def main():
    tell((await start("serve", "--port", "0", folder=pathlib.Path.cwd())).pid)
asyncio.run(main())
""",
    "an agent": """
import asyncio, os, sys
from testbed import caller
agent = ["-c", "import time; time.sleep(600)"]
async def main():
    start = asyncio.create_subprocess_exec
    async def started(*argv, **how):
        process = await start(*argv, **how)
        tell(process.pid)
    asyncio.create_subprocess_exec = started
    async with caller.calling(sys.executable, *agent, cwd=".", env=dict(os.environ)):
        pass
asyncio.run(main())
""",
    "an attacker": """
from benchmarks.tenants import __main__ as tenants
if __name__ == "__main__":
    import multiprocessing
    with tenants._attacking("cuts", "http://127.0.0.1:9"):
        tell(*(each.pid for each in multiprocessing.active_children()))
""",
    "a benchmark's process that answers": """
import pathlib, sys
from benchmarks.engine.answering import Child
argv = sys.executable, "-c", "import time; time.sleep(600)"
tell(Child(argv, {}, pathlib.Path(sys.argv[1]) / "log")._process.pid)
""",
    "other work": """
import psutil
from benchmarks.bargein.other_work import busy_loops
with busy_loops(2):
    tell(*(each.pid for each in psutil.Process().children()))
""",
}
SERVICES = {
    "redis-server": """
from testbed.ports import free_ports
from testbed.redis_process import RedisProcess
with RedisProcess(free_ports(1)[0]) as redis, redis.suspended():
    tell(redis._process.pid)
""",
    "haproxy": """
import pathlib
from testbed.haproxy_process import HAProxyProcess
from testbed.ports import free_ports
ports = free_ports(4)
with HAProxyProcess(pathlib.Path("deploy/haproxy.cfg"), ports[:2], [ports[2:]] * 2) as haproxy:
    tell(haproxy._process.pid)
""",
}
READERS = {
    "benchmarks/gpu/run.py": "the process group reads a pipe: tests/benchmarks/test_gpu.py",
    "testbed/fork_server.py": "reads a socket",
    "voiceagent_tts/plugins/clones/cloner_processes.py": "the cloner asks for the signal itself",
    "voiceagent_tts/plugins/lexicons/reader.py": "reads a pipe",
    "voiceagent_tts/synthesizer/workers.py": "reads a pipe: tests/worker/test_worker.py",
}
"""Files whose children end by themselves when a pipe of their parent's closes."""


def ends_with_its_parent(program: str, by: signal.Signals, folder: Path) -> bool:
    """Whether all processes that a program names have ended after it was ended by a signal."""
    argv = [sys.executable, "-c", TELL + program, str(folder)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        children = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        assert children, "the program has started nothing"
        try:
            parent.send_signal(by)
            return all(select.select([each], [], [], PATIENCE_S)[0] for each in children)
        finally:
            for each in children:
                os.close(each)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", STARTERS.values(), ids=STARTERS)
def test_no_child_is_left(program: str, by: signal.Signals, tmp_path: Path) -> None:
    """A server and its engine would keep their port and memory for ever."""
    assert ends_with_its_parent(program, by, tmp_path)


@pytest.mark.services
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("service", SERVICES)
def test_no_service_is_left(service: str, by: signal.Signals, tmp_path: Path) -> None:
    """Not even one that is suspended, which hears no request to end."""
    require_program(service)
    assert ends_with_its_parent(SERVICES[service], by, tmp_path)


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
        and "following" not in ast.unparse(call)
        for call in calls
    )
