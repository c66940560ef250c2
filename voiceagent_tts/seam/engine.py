"""The interface that every engine implements: commands in, events out, one step at a time."""

from collections.abc import Callable
from typing import Protocol

from voiceagent_tts.seam.commands import Command
from voiceagent_tts.seam.events import Capabilities, Event

Inbox = Callable[[], list[Command]]
"""Returns the commands that have arrived since the last call; never blocks."""

Outbox = Callable[[Event], None]
"""Sends one event; returns when it is on its way."""


class Engine(Protocol):
    """Speaks the contexts of one worker: commands from an `Inbox`, events to an `Outbox`."""

    @property
    def capabilities(self) -> Capabilities:
        """Voices, languages and limits of this engine; constant."""
        ...

    @property
    def rows_used(self) -> int:
        """Number of contexts that occupy a row."""
        ...

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of this kind of engine for `/metrics`, by name.

        Names end in a unit, and in `_total` where the value counts from the worker's start.
        """
        ...

    def step(self) -> float | None:
        """Receive commands and do one step for all rows with credit.

        Returns:
            Seconds until the next step has work: 0.0 for at once, None for not before a command
            arrives.
        """
        ...

    def close(self) -> None:
        """Release the engine's resources; idempotent."""
        ...
