"""The input and output of one session of the barge-in benchmark, for any host.

A host plays a list of cuts: the agent replies, the user interrupts, and the host reports the played
audio and the committed text.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.replies import Cut
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass

Host = Literal["livekit", "pipecat"]

ANSWER_PATIENCE_S = 5.0
"""Wait for an answer before the user asks again: a busy machine may lose the user's audio."""
TRIES = 3
"""Attempts of the user to be noticed."""
LONGEST_WAIT_S = 12.0
"""Longest wait for a reply to start or to end."""
_LANGUAGE = "{language}"
_CONNECTION_SCHEMES = ("ws", "http")


Fault = Literal["connection"] | Callable[[], object]
"""What a fault breaks: the service's connections, or whatever the function breaks."""


@dataclass(frozen=True, slots=True)
class Call:
    """The voice of a session's agent, and its user.

    Args:
        service: class of the text-to-speech service; `{language}` in its arguments stands for the
            language of the session.
        user_pcm: the user's speech, PCM16 at 16 kHz.
        fault: what the faults of the cuts break; None for no faults.
    """

    service: ServiceClass
    user_pcm: bytes
    fault: Fault | None = None

    def make_service(self, language: str, **extra: Any) -> Any:
        """Construct the service; `extra` arguments are left out where it does not take them.

        Raises:
            InvalidRequestError: there is no such class, or it does not take the arguments.
        """
        arguments = _replaced(
            self.service.arguments, lambda text: text.replace(_LANGUAGE, language)
        )
        return replace(self.service, arguments=arguments).make(**extra)

    @property
    def server_url(self) -> str:
        """The address of the server among the arguments: the first with `ws://` or `http://`.

        Raises:
            InvalidRequestError: there is none; connections with TLS cannot be cut.
        """
        for value in self.service.arguments.values():
            if isinstance(value, str) and urlsplit(value).scheme in _CONNECTION_SCHEMES:
                return value
        raise InvalidRequestError(
            "target: a connection can be cut where an argument is the server's address with "
            f"ws:// or http://; got {sorted(self.service.arguments)}"
        )

    def through(self, proxy_url: str) -> "Call":
        """This call with the server's address replaced by that of a proxy."""
        server, proxy = urlsplit(self.server_url).netloc, urlsplit(proxy_url).netloc
        arguments = _replaced(
            self.service.arguments, lambda text: text.replace(f"//{server}", f"//{proxy}")
        )
        return replace(self, service=replace(self.service, arguments=arguments))


def _replaced(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with `change` applied to every string in it."""
    match value:
        case str():
            return change(value)
        case dict():
            return {name: _replaced(of, change) for name, of in value.items()}
        case list():
            return [_replaced(of, change) for of in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one reply.

    Args:
        cut: the planned cut.
        was_interrupted: whether the host interrupted the reply; False if it ended before.
        played: played audio, PCM16 at 24 kHz.
        committed: text of the reply in the history; "" for none.
        received_s: length of the audio that reached the loudspeaker's queue.
        dry_s: silence within the reply, because no audio had arrived.
        cancel_ms: time from the host's interruption to the last sample.
        barge_in_ms: time from the user's first sound to the last sample.
    """

    cut: Cut
    was_interrupted: bool
    played: bytes
    committed: str
    received_s: float
    dry_s: float
    cancel_ms: float
    barge_in_ms: float

    @property
    def played_s(self) -> float:
        """Length of the played audio."""
        return len(self.played) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    def outcome(self, heard: Heard) -> "Outcome":
        """What is scored, given the words that were heard."""
        return Outcome(self, heard)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An interrupted reply, and its words that were heard."""

    reply: Reply
    heard: Heard


Talk = Callable[
    [Call, Sequence[Cut], Callable[[], object], Callable[[Reply], None]], Awaitable[None]
]
"""A host: plays the cuts one after another. The first function injects a fault; the second one
receives each result."""
