"""What every target offers: connections that speak one utterance after another."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.utterance import Request


class Connection(Protocol):
    """A connection that speaks one utterance at a time."""

    @property
    def is_usable(self) -> bool:
        """Whether it can speak another utterance."""
        ...

    async def start(self, request: Request, recorder: Recorder) -> None:
        """Begin an utterance; everything that arrives goes to `recorder` until the next `start`."""
        ...

    async def send(self, text: str) -> None:
        """Send the next piece of its text."""
        ...

    async def end(self) -> None:
        """No more text follows."""
        ...

    async def cancel(self) -> None:
        """The listener has interrupted: stop the utterance, by whatever means there are."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class Target(Protocol):
    """Something that speaks."""

    async def connect(self, *, is_measured: bool = False) -> Connection:
        """Open a connection that is ready for an utterance.

        Args:
            is_measured: whether an utterance waits for it: then nothing is sent that this utterance
                does not need.

        Raises:
            VoiceAgentError, OSError: the target cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How every utterance is to be spoken.

    Attributes:
        voice: voice name; None for the target's default.
        model: model name, for servers that require one.
        api_key: key, for servers that require one.
        arguments: further fields of every request, or arguments of a class.
        server_pid: the server's process, where it runs on this machine and its CPU time and memory
            are to be measured.
    """

    voice: str | None = None
    model: str | None = None
    api_key: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    server_pid: int | None = None
