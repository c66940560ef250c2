"""Start the package's processes as forks of one that has loaded its modules.

Tests start hundreds of engines, servers and commands. Loading modules would take most of their
processor time: 0.25 s of an engine's, 0.5 to 1.1 s of a command's, and 3 s of each worker of
pytest-xdist, which collects all tests. A fork is a process of its own
like any other: the test is its parent, and it has the arguments, environment, folder, session and
standard streams that were asked for. Only its command line in `/proc` is that of the fork server.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from voiceagent_tts.garbage import without_collection
from voiceagent_tts.offspring import Following

_LIGHT = (
    "voiceagent_tts.plugins.recordings.file_decoder",
    "voiceagent_tts.cli.serve",
    "voiceagent_tts.cli.say",
    "voiceagent_tts.espeak.engine",
    "voiceagent_tts.worker.host",
    "testbed.throttled",
    "py3langid.langid",
    "soundfile",
    "typer._adapters",
)
"""Modules that processes load; importing them reads no variable and starts no thread."""

_WITH_TORCH = (
    *_LIGHT,
    "voiceagent_tts.plugins.forced.load",
    "voiceagent_tts.engine.load",
    "voiceagent_tts.plugins.recordings.clone",
    "voiceagent_tts.plugins.pocket.load",
)

_OF_TESTS = (
    *_WITH_TORCH,
    "hypothesis",
    "livekit.agents",
    "livekit.plugins.openai",
    "matplotlib.pyplot",
    "pipecat.pipeline.worker",
    "pipecat.services.openai.llm",
    "playwright.async_api",
    "torch.utils.tensorboard",
    "voiceagent_tts.adapters.livekit",
    "voiceagent_tts.adapters.pipecat",
    "voiceagent_tts.plugins.bench.run",
    "voiceagent_tts.plugins.training.train",
)
"""Modules that tests load while they are collected; an environment may lack some of them."""

_MODULES = {
    ("-m", "voiceagent_tts.worker", "forced"): _WITH_TORCH,
    ("-m", "voiceagent_tts.worker", "pocket"): _WITH_TORCH,
    ("-m", "voiceagent_tts.worker", "qwen3"): _WITH_TORCH,
    ("-m", "voiceagent_tts.worker", "espeak"): _LIGHT,
    ("-m", "voiceagent_tts.worker", "online"): _LIGHT,
    ("-m", "testbed.throttled", "espeak"): _LIGHT,
    ("-m", "testbed.throttled", "pocket"): _WITH_TORCH,
    ("-m", "testbed.throttled", "qwen3"): _WITH_TORCH,
    ("-m", "testbed.throttling"): _LIGHT,
    ("-m", "voiceagent_tts.plugins.recordings.file_decoder"): _LIGHT,
    ("-m", "voiceagent_tts.plugins.clones.cloner"): _WITH_TORCH,
    ("-m", "voiceagent_tts", "voices", "add"): _WITH_TORCH,
    ("-m", "voiceagent_tts"): _LIGHT,
    ("-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"): _OF_TESTS,  # pytest-xdist
}
"""The beginnings of command lines, after `python`, with what is loaded for them."""

_ROOT = Path(__file__).parents[1]
_PR_SET_CHILD_SUBREAPER = 36
_THREADS = "OMP_NUM_THREADS"
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_AS)
_MOST_BYTES = 1 << 18
_DESCRIPTORS = 1024
_fork_exec: Any = subprocess._fork_exec  # pyright: ignore[reportAttributeAccessIssue]


class ForkServers:
    """The servers of this process; each starts with the first process that is asked of it."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], _Server] = {}

    def install(self) -> None:
        """Let `subprocess` and `asyncio` use the servers."""
        subprocess._fork_exec = self._start  # pyright: ignore[reportAttributeAccessIssue]

    def close(self) -> None:
        subprocess._fork_exec = _fork_exec  # pyright: ignore[reportAttributeAccessIssue]
        for server in self._servers.values():
            server.close()

    def _start(self, argv: Sequence[Any], *how: Any) -> int:
        """Do what `_posixsubprocess.fork_exec` does, and return the number of the process."""
        _, _, kept, folder, environment, *rest = how
        streams, (_, exec_failed, _, is_session_leader), others = rest[:6], rest[6:10], rest[10:-2]
        follow = rest[-2]
        is_plain = kept == (exec_failed,) and others == [-1, None, None, None, -1]
        is_plain = is_plain and (follow is None or isinstance(follow, Following))
        variables = dict(os.environb) if environment is None else _variables(environment)
        modules = _modules_for(argv)
        if not (modules and is_plain and _python_is_the_same(variables)):
            return _fork_exec(argv, *how)
        request = {
            "argv": [os.fsdecode(each) for each in argv],
            "folder": os.fsdecode(folder or os.getcwd()),
            "variables": {os.fsdecode(k): os.fsdecode(v) for k, v in variables.items()},
            "is_session_leader": bool(is_session_leader),
            "follows": follow and [follow.parent_pid, follow.by],
            "limits": [resource.getrlimit(limit) for limit in _LIMITS],
        }
        stdin, _, _, stdout, _, stderr = streams
        descriptors = [
            given if given != -1 else standard
            for standard, given in enumerate((stdin, stdout, stderr))
        ]
        if modules not in self._servers:
            self._servers[modules] = _Server(modules)
        return self._servers[modules].start(json.dumps(request).encode(), descriptors)


class _Server:
    """A process that has loaded modules, and forks."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answering:
            argv = [sys.executable, "-m", __name__, str(answering.fileno()), *modules]
            self._process = subprocess.Popen(argv, cwd=_ROOT, pass_fds=[answering.fileno()])

    def start(self, request: bytes, descriptors: list[int]) -> int:
        # The process becomes a child of this one when the one between them ends.
        _be_subreaper(True)
        try:
            socket.send_fds(self._asking, [request], descriptors)
            return int(self._asking.recv(32))
        finally:
            _be_subreaper(False)

    def close(self) -> None:
        self._asking.close()
        self._process.wait()


def _variables(environment: Sequence[bytes]) -> dict[bytes, bytes]:
    pairs = (each.partition(b"=") for each in environment)
    return {name: value for name, _, value in pairs}


def _modules_for(argv: Sequence[Any]) -> tuple[str, ...]:
    """What is loaded for a command line; nothing for one that is none of ours."""
    executable, *arguments = argv
    if executable != sys.executable:
        return ()
    found = (
        modules for begin, modules in _MODULES.items() if tuple(arguments[: len(begin)]) == begin
    )
    return next(found, ())


def _python_is_the_same(variables: dict[bytes, bytes]) -> bool:
    """Whether Python and OpenMP start as here, but for the threads, whose number a fork sets."""

    def own(all_of_them: Any) -> dict[bytes, bytes]:
        found = {k: v for k, v in all_of_them.items() if k.startswith((b"PYTHON", b"OMP_"))}
        return found | dict.fromkeys(found.keys() & {_THREADS.encode()}, b"")

    return own(variables) == own(os.environb)


def _be_subreaper(whether: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


def _fork_twice() -> int:
    """Fork a grandchild, whose parent ends: return its number, and 0 in itself.

    The grandchild is then a child of the test's process, the nearest that takes such children.
    """
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        process = os.fork()
        if process != 0:
            os.write(write, str(process).encode())
            os._exit(0)
        os.close(read)
        os.close(write)
        while os.getppid() == between:
            time.sleep(0.0005)
        return 0
    os.close(write)
    os.waitpid(between, 0)
    with open(read, "rb") as told:
        return int(told.read())


def _next_request(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request, and return it in the fork; the server ends with the test's process."""
    while True:
        received, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not received:
            sys.exit()
        if number := _fork_twice():
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(str(number).encode())
            continue
        for standard, descriptor in enumerate(descriptors):
            os.dup2(descriptor, standard)
        os.closerange(3, _DESCRIPTORS)
        return json.loads(received)


def _become(request: dict[str, Any]) -> None:
    """Take over what a new process of Python would have been given, and run its program."""
    if request["is_session_leader"]:
        os.setsid()
    if request["follows"]:
        Following(*request["follows"])()
    for limit, numbers in zip(_LIMITS, request["limits"], strict=True):
        resource.setrlimit(limit, numbers)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest may run under nohup, which ignores it
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    if (torch := sys.modules.get("torch")) and _THREADS in os.environ:
        torch.set_num_threads(int(os.environ[_THREADS]))  # read when it was loaded
    sys.orig_argv = request["argv"]
    sys.path[0] = request["folder"]
    executable, option, program, *arguments = request["argv"]
    if option == "-m":
        sys.argv = [executable, *arguments]
        _end_at_once_after(lambda: runpy.run_module(program, run_name="__main__", alter_sys=True))
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = ["-c"]
        _end_at_once_after(lambda: exec(arguments[0], vars(main)))


def _end_at_once_after(run: Callable[[], object]) -> None:
    """Run a program, and end as Python does, except that nothing is freed that was loaded."""
    status: int | str | None = 1
    # Registered first, called last: after every thread and every other handler.
    atexit.register(lambda: _end_at_once(status))
    try:
        run()
        status = 0
    except SystemExit as ended:
        status = ended.code
        raise


def _end_at_once(status: int | str | None) -> None:
    if not isinstance(status, str):  # which Python prints
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)


def _load(modules: Sequence[str]) -> None:
    with without_collection(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


if __name__ == "__main__":
    _load(sys.argv[2:])
    gc.freeze()
    _become(_next_request(socket.socket(fileno=int(sys.argv[1]))))
