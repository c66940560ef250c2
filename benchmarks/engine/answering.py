"""A child process that answers requests, and the end of it that asks.

One JSON object a line each way, over standard input and output. Standard library only: the
official package's environment, which has none of ours, runs this too.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the fields of a request, gives those of the answer."""

_REPOSITORY = Path(__file__).parents[2]


def answer_requests(load: Callable[[], Answer]) -> None:
    """Answer on standard output until standard input ends; what anybody prints goes elsewhere.

    Args:
        load: makes what answers.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answer = load()
        for line in sys.stdin:
            answers.write(json.dumps(answer(json.loads(line))) + "\n")
            answers.flush()


def peak_mb() -> float:
    """The most memory that this process has had in use so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


class Child:
    """A process that runs `answer_requests`; a context manager that ends it.

    Args:
        argv: its command line.
        environment: added to ours.
        log: takes what it writes to standard error.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=_REPOSITORY,
                env={**os.environ, **environment},
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            ChildProcessError: the process has ended; the message names its log.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            raise ChildProcessError(f"a process ended with status {status}; see {self._log}")
        return json.loads(line)
