"""Talk to a `Conversation` without devices, some times faster than in real time.

Time passes in steps of 20 ms: the microphone delivers a step, and the loudspeaker plays one.
"""

import asyncio
import time
from collections.abc import Callable

from agents.conversation import Conversation
from testbed.user_sounds import RATE_HZ
from testbed.waiting import PATIENCE_S
from voiceagent_tts.core import SAMPLE_RATE_HZ

_STEP_S = 0.02
_PASSES_S = 0.002
"""Real time of a step: the server generates ahead, so that the loudspeaker does not run dry."""
_MICROPHONE_BYTES = round(RATE_HZ * _STEP_S) * 2


class TalkingUser:
    """A user with a microphone and a loudspeaker.

    Attributes:
        played: everything that the loudspeaker played, with silence where it played nothing.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.played = bytearray()
        self._conversation = conversation

    async def say(self, pcm: bytes) -> None:
        """Make a sound."""
        for start in range(0, len(pcm), _MICROPHONE_BYTES):
            await self._step(pcm[start : start + _MICROPHONE_BYTES])

    async def wait(self, is_true: Callable[[], bool], what: str) -> None:
        """Be silent until `is_true`; `what` describes it for the failure message."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            await self._step(b"")

    async def _step(self, pcm: bytes) -> None:
        self.played += self._conversation.playback.read(round(SAMPLE_RATE_HZ * _STEP_S), 0.0)
        await self._conversation.hear(pcm.ljust(_MICROPHONE_BYTES, b"\0"))
        await asyncio.sleep(_PASSES_S)
