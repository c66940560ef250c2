"""What the core asks of the keys and limits of a server, which a plugin has.

Without any, each client that reaches the server may do everything.
"""

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope as AsgiScope

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.callers import Caller


class Admission(Protocol):
    """The permission of one context: charges its text, and its audio when it ends."""

    def defer_charge(self, chars: int) -> bool:
        """Note text that is charged with later text; return False if it must be charged first."""
        ...

    async def charge(self, chars: int) -> None:
        """Charge text before it is spoken.

        Raises:
            OverloadedError: a limit is reached (`rate_limited`); nothing of this text is charged.
            InvalidRequestError: the text is longer than the limit (`text_too_long`).
        """
        ...

    def charge_in_background(
        self, chars: int, on_refusal: Callable[[VoiceAgentError], None]
    ) -> None:
        """Charge text that is already being spoken, without waiting."""
        ...

    def free_row(self) -> None:
        """Note that the context occupies no row of a worker any more; idempotent."""
        ...

    def end(self, audio_s: float = 0.0, *, has_row: bool = False) -> None:
        """Charge the audio and the rest of the text, and end the context; idempotent.

        Args:
            audio_s: audio that the context has used.
            has_row: whether it counts as open until `free_row` is called, if it was not.
        """
        ...


class Access(Protocol):
    """The keys and limits of a server whose settings name some."""

    @property
    def key_ids(self) -> list[str]:
        """The ids of all keys."""
        ...

    async def start(self) -> None:
        """Read the keys, and watch them."""
        ...

    async def close(self) -> None:
        """Finish what is being counted; no context is open."""
        ...

    def key_id_of(self, request: AsgiScope, query_key: str | None) -> str | None:
        """The id of the key that a client has sent; None on a server without keys.

        Raises:
            UnauthorizedError: it has sent none, or one that is not known.
        """
        ...

    def lacks_key(self, request: AsgiScope) -> bool:
        """Whether a request needs a key and has none in its headers."""
        ...

    def check_scope(self, key_id: str | None, method: str, path: str) -> None:
        """Refuse a request whose key may not use a route.

        Raises:
            UnauthorizedError: the key was revoked (`unauthorized`), or lacks the scope
                (`forbidden`).
        """
        ...

    def sees_callers(self, request: AsgiScope) -> bool:
        """Whether a request that needs no key may learn what all callers do: that of an admin."""
        ...

    def is_admin(self, key_id: str) -> bool:
        """Whether a key may see and do everything; False for one that was revoked."""
        ...

    def name_of(self, key_id: str) -> str | None:
        """What a key is for; None for one that was revoked."""
        ...

    def clone_filter(self, key_id: str) -> Callable[[str], bool]:
        """Return what says whether a key may know of a clone, by the name of its file."""
        ...

    async def admit(self, caller: Caller, chars: int) -> Admission | None:
        """Admit a context with `chars` characters so far, which are not charged; None: no limits.

        Raises:
            OverloadedError: a limit is reached (`rate_limited`), or Redis is away and the settings
                refuse contexts meanwhile (`overloaded`).
            InvalidRequestError: the text is longer than a limit (`text_too_long`).
            UnauthorizedError: the key was revoked.
        """
        ...
