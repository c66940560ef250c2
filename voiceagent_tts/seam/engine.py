"""The interface that every engine implements: commands in, events out, one step at a time."""

from typing import Protocol

from voiceagent_tts.seam.commands import Command
from voiceagent_tts.seam.events import Capabilities, Event


class Inbox(Protocol):
    """Where an engine takes commands from; never blocks."""

    def __call__(self) -> list[Command]:
        """Take the commands that have arrived since the last call."""
        ...


class Outbox(Protocol):
    """Where an engine leaves events; they are on their way when the call returns."""

    def __call__(self, event: Event, /) -> None:
        """Hand over one event."""
        ...


class Engine(Protocol):
    """What stands behind a worker: commands in from an `Inbox`, events out to an `Outbox`."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; fixed for its life."""
        ...

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row now."""
        ...

    @property
    def figures(self) -> dict[str, float]:
        """What operators may want to know of this kind of engine, for `/metrics`.

        Names end in a unit, and in `_total` where the figure counts from the worker's start.
        """
        ...

    def step(self) -> float | None:
        """Take commands and do one step for the rows that may be stepped.

        Returns:
            Seconds until the next step has something to do: 0.0 for at once, None for not before
            a command arrives.
        """
        ...

    def close(self) -> None:
        """Release what the engine owns; idempotent."""
        ...
