"""A restartable one-shot timer on the running event loop."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls a function once, some seconds after its last start, unless it is stopped before.

    Args:
        callback: what to call.
        on_failure: receives an exception of `callback`; None to leave it to the event loop, which
            logs it with its message.
    """

    def __init__(
        self,
        callback: Callable[[], None],
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._callback = callback
        self._on_failure = on_failure
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the call is scheduled."""
        return self._handle is not None

    def start(self, delay_s: float) -> None:
        """Schedule the call in `delay_s` seconds; replaces an earlier start."""
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def stop(self) -> None:
        """Drop the scheduled call, if any."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        try:
            self._callback()
        except Exception as error:
            if self._on_failure is None:
                raise
            self._on_failure(error)


MakeTimer = Callable[[Callable[[], None]], Timer]
"""Makes the timers of one context, whose failures end it."""
