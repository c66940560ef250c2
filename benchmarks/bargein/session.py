"""The input and output of one session of the barge-in benchmark, for any host.

A host plays a list of cuts: the agent replies, the user interrupts, and the host reports the played
audio and the committed text. This module knows no agent framework and no server.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.bargein.texts import Cut
from voiceagent_tts.core import WordTimestamp

VoiceKind = Literal[
    "ours", "words ignored", "no words", "sentence-end words", "baseten", "cartesia"
]
"""How the agent speaks: our adapter; our adapter in a session that ignores its words; our audio
without words, or with words at the end of each sentence; a stock plugin with our server."""

ANSWER_PATIENCE_S = 5.0
"""Wait for an answer before the user asks again: a busy machine may lose the user's audio."""
TRIES = 3
"""Attempts of the user to be noticed."""
LONGEST_WAIT_S = 12.0
"""Longest wait for a reply to start or to end."""


FaultKind = Literal["socket", "worker"]
"""What a fault breaks: the connection to the server, or the server's engine."""


@dataclass(frozen=True, slots=True)
class Call:
    """The server and the voice of a session's agent.

    Args:
        url: URL of the server, `ws://HOST:PORT`.
        server_pid: process id of the server.
        voice_kind: how the agent speaks.
        voice: id of a voice of the server.
        user_pcm: the user's speech, PCM16 at 16 kHz.
        max_lead_s: how far the server may run ahead of playback; None for its default.
        fault: what the faults of the cuts break.
    """

    url: str
    server_pid: int
    voice_kind: VoiceKind
    voice: str
    user_pcm: bytes
    max_lead_s: float | None = None
    fault: FaultKind | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """The result of one reply.

    Args:
        cut: the planned cut.
        was_interrupted: whether the host interrupted the reply; False if it ended before.
        played: played audio, PCM16 at 24 kHz.
        committed: text of the reply in the history; "" for none.
        words: word times from the server, if the adapter reports them.
        received_s: length of the audio that reached the loudspeaker's queue.
        dry_s: silence within the reply, because no audio had arrived.
        cancel_ms: time from the host's interruption to the last sample.
        barge_in_ms: time from the user's first sound to the last sample.
        interrupted_at: time of the host's interruption, in `time.time()`.
    """

    cut: Cut
    was_interrupted: bool
    played: bytes
    committed: str
    words: tuple[WordTimestamp, ...]
    received_s: float
    dry_s: float
    cancel_ms: float
    barge_in_ms: float
    interrupted_at: float


Talk = Callable[
    [Call, Sequence[Cut], Callable[[], None], Callable[[Spoken], None]], Awaitable[None]
]
"""A host: plays the cuts one after another. The first function injects a fault; the second one
receives each result."""
