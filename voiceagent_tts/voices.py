"""Voice name → Voice: which worker speaks it.

Knows the names that the running workers offer. Does not know how a voice is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from voiceagent_tts.core import Capabilities
from voiceagent_tts.errors import ErrorCode, InvalidRequestError

_NAMES_IN_A_MESSAGE = 40


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that a user can choose, and the worker that speaks it."""

    name: str
    worker: str


class VoiceBook:
    """The voices of all workers; where two offer a name, the worker named first speaks it."""

    def __init__(self, workers: Mapping[str, Capabilities]) -> None:
        self._voices: dict[str, Voice] = {}
        self._adding = [name for name, known in workers.items() if known.adds_voices]
        for worker, capabilities in workers.items():
            for name in capabilities.voices:
                self._voices.setdefault(name.casefold(), Voice(name, worker))

    def names(self) -> list[str]:
        """Every name, the default first."""
        return [voice.name for voice in self._voices.values()]

    def resolve(self, name: str | None) -> Voice:
        """The voice called `name`, in any case; the first one where it is None.

        `base+variant` (espeak's own notation) is a voice where both halves are.

        Raises:
            InvalidRequestError: with code `invalid_voice` and the names that exist.
        """
        if name is None:
            return self._default()
        base, plus, variant = name.casefold().partition("+")
        known = self._voices.get(base)
        if known is None and self._adding:
            return Voice(name, self._adding[0])  # that worker knows whether it exists by now
        if known is None or (plus and variant not in self._voices):
            names = self.names()
            more = f" and {len(names) - _NAMES_IN_A_MESSAGE} more" * (
                len(names) > _NAMES_IN_A_MESSAGE
            )
            raise InvalidRequestError(
                f"expected the name of a voice, got {name[:64]!r}; known are "
                f"{', '.join(names[:_NAMES_IN_A_MESSAGE])}{more}",
                code=ErrorCode.INVALID_VOICE,
            )
        return Voice(name, known.worker) if plus else known

    def _default(self) -> Voice:
        for voice in self._voices.values():
            return voice
        raise InvalidRequestError(
            "there is no voice yet: `voiceagent-tts voices add NAME ref.wav` clones one",
            code=ErrorCode.INVALID_VOICE,
        )
