"""What a session of the barge-in benchmark is asked for, and what it tells, whatever the host.

A host talks through a list of cuts: the agent replies, the user cuts in, and what was played is set
beside what the history says. This module knows no agent framework and no server.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.bargein.texts import Cut
from voiceagent_tts.core import WordTimestamp

VoiceKind = Literal[
    "ours", "words ignored", "no words", "sentence-end words", "baseten", "cartesia"
]
"""How the agent speaks: our adapter; our adapter in a session that does not look at its words; our
audio with no words, or with words at the end of each sentence; a stock plugin on our server."""

ANSWER_PATIENCE_S = 5.0
"""A user who gets no answer for so long asks again: a busy machine loses some of what is said."""
TRIES = 3
"""So often the user tries to be heard."""
LONGEST_WAIT_S = 12.0
"""A reply that takes longer to come, or to end, is given up."""


FaultKind = Literal["socket", "worker"]
"""What fails where a cut asks for it: the connection to the server, or the server's engine."""


@dataclass(frozen=True, slots=True)
class Call:
    """Where a session's agent gets its voice.

    Args:
        url: of the server, `ws://HOST:PORT`.
        server_pid: its process.
        voice_kind: how the agent speaks.
        voice: a name that the server knows.
        user_pcm: what the user says, at 16 kHz.
        max_lead_s: how far the server may run ahead of playback; None for its own choice.
        fault: what fails where a cut asks for it.
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
    """What became of one reply.

    Args:
        cut: what was planned.
        is_cut: whether the host interrupted it; it may also have ended by itself.
        played: PCM16 at 24 kHz that left the loudspeaker.
        committed: what the history has of it; "" for nothing.
        words: as the server sent them, where the adapter tells.
        received_s: sound that had reached the loudspeaker's queue.
        dry_s: silence within the reply.
        cancel_ms: from the host's interruption to the last sample.
        barge_in_ms: from the user's first sound to the last sample.
        interrupted_at: when the host gave the reply up, on `time.time()`.
    """

    cut: Cut
    is_cut: bool
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
"""A host: talks through the cuts, one after the other, and tells what became of each. The first
function injects the fault that a cut asks for."""
