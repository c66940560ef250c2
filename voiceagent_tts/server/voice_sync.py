"""Changes of the voices in threads of their own, and the copies of voices in a bucket, kept fresh.

A bucket that does not answer then takes no thread from contexts, which read voices and lexicons.
Knows no requests.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.voice_bucket import BucketVoiceFolder
from voiceagent_tts.voices import VoiceFolder

PULL_S = 1.0
"""Time between two pulls; docs/operations.md promises two seconds."""
_CHANGES_AT_ONCE = 2

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")


class VoiceSync:
    """Runs what changes the voices, and follows the changes of other servers.

    Args:
        clones: the voices.
        on_change: called after other servers have changed voices in a bucket.
    """

    def __init__(self, clones: VoiceFolder, on_change: Callable[[], Awaitable[None]]) -> None:
        self._bucket = clones if isinstance(clones, BucketVoiceFolder) else None
        self._on_change = on_change
        self._changes = ThreadPoolExecutor(_CHANGES_AT_ONCE, "voices")
        self._pulls = ThreadPoolExecutor(1, "voices-pull")
        self._pulling: asyncio.Task[None] | None = None
        self._is_reached: bool | None = None

    @property
    def is_shared(self) -> bool:
        """Whether the voices are in a bucket that can be reached now."""
        return bool(self._is_reached)

    async def start(self) -> None:
        """Pull once, and then again and again; without the bucket, the copies are spoken."""
        if self._bucket is not None:
            await self._pull(self._bucket)
            self._pulling = asyncio.create_task(self._pull_always(self._bucket))

    async def change(self, change: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run a change of the voices, which may block for seconds.

        Raises:
            Exception: what it raises.
        """
        return await asyncio.get_running_loop().run_in_executor(self._changes, change, *arguments)

    async def close(self) -> None:
        """Pull no more; idempotent. A request to the bucket in progress is not waited for."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.wait({self._pulling})
        for threads in (self._changes, self._pulls):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _pull_always(self, bucket: BucketVoiceFolder) -> None:
        while True:
            await asyncio.sleep(PULL_S)
            await self._pull(bucket)

    async def _pull(self, bucket: BucketVoiceFolder) -> None:
        loop = asyncio.get_running_loop()
        was_reached = self._is_reached
        try:
            has_changed = await loop.run_in_executor(self._pulls, bucket.pull)
            self._is_reached = True
            if has_changed:
                await self._on_change()
        except VoiceAgentError as error:
            self._is_reached = False
            if was_reached is not False:
                _log.error("voices_not_shared", code=error.code, error=str(error.__cause__))
        except Exception as error:  # a bug; listeners are served with the copies
            self._is_reached = False
            _log.error("voices_not_pulled", error=type(error).__name__)
        if self._is_reached and not was_reached:
            _log.info("voices_shared")
