"""Start workers and servers whose engines are slow or faulty, as `testbed.throttled` makes them.

`python -m testbed.throttling serve ...` is `voiceagent-tts` with such engines: the environment has
the fields of `Throttle` as JSON.
"""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from testbed.throttled import VARIABLE
from voiceagent_tts.config import Settings
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.server import state
from voiceagent_tts.server.serve import RunningServer, running


class ThrottledSpec(WorkerSpec):
    __slots__ = ()

    def argv(self, endpoint: str) -> list[str]:
        _, _, _, *rest = super().argv(endpoint)
        return [sys.executable, "-m", "testbed.throttled", *rest]


def throttled(spec: WorkerSpec, throttle: Mapping[str, Any]) -> WorkerSpec:
    """Return the same worker with the fields of a `Throttle`."""
    own = {VARIABLE: json.dumps(dict(throttle))}
    fields: dict[str, Any] = {
        each.name: getattr(spec, each.name) for each in dataclasses.fields(spec)
    }
    fields["environment"] = {**spec.environment, **own}
    return ThrottledSpec(**fields)


@contextlib.contextmanager
def throttling(throttle: Mapping[str, Any]) -> Iterator[None]:
    """Throttle the engines of servers that are made within the block."""
    usual = state.worker_specs
    state.worker_specs = lambda settings: {
        name: throttled(spec, throttle) for name, spec in usual(settings).items()
    }
    try:
        yield
    finally:
        state.worker_specs = usual


@contextlib.asynccontextmanager
async def running_throttled(
    settings: Settings, throttle: Mapping[str, Any] | None
) -> AsyncIterator[RunningServer]:
    """As `running`, with the fields of a `Throttle`; None for a usual engine."""
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.nullcontext() if throttle is None else throttling(throttle):
            server = await stack.enter_async_context(running(settings))
        yield server


if __name__ == "__main__":
    # Imported here: every run of the tests imports this module, and few start this program.
    from voiceagent_tts.cli import main

    with throttling(json.loads(os.environ[VARIABLE])):
        main()
