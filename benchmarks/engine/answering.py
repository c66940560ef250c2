"""Ask a child process, which answers requests over its standard input and output.

Requests and answers are JSON objects, one per line. Uses the standard library only, because the
official package's environment, which lacks this project's packages, runs it too.
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

from voiceagent_tts.offspring import Following

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the fields of a request and returns those of the answer."""

_REPOSITORY = Path(__file__).parents[2]


def answer_requests(load: Callable[[], Answer]) -> None:
    """Answer requests until standard input ends; other output goes to standard error.

    Args:
        load: returns the function that answers.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answer = load()
        for line in sys.stdin:
            answers.write(json.dumps(answer(json.loads(line))) + "\n")
            answers.flush()


def peak_mb() -> float:
    """Return the peak memory of this process in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


class Child:
    """A process that runs `answer_requests`; a context manager that ends it.

    Args:
        argv: command line.
        environment: variables to add to this process's environment.
        log: file for its standard error.
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
                preexec_fn=Following(os.getpid()),
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
        """Send a request and return the answer.

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
