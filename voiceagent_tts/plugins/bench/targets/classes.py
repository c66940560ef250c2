"""Services and plugins by import path: `MODULE.CLASS` and the arguments of its constructor."""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A service by import path, with the arguments of its constructor.

    `settings` as an object becomes the class's own `Settings`, as Pipecat's services expect.
    """

    path: str
    arguments: dict[str, Any]

    def load(self) -> type:
        """Import the class.

        Raises:
            InvalidRequestError: there is no such class.
            ModuleNotFoundError: a package that its module needs is missing.
        """
        module, _, name = self.path.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (AttributeError, ValueError):
            found = None
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            found = None
        if not inspect.isclass(found):
            raise _invalid(
                "expected MODULE.CLASS, such as voiceagent_tts.adapters.pipecat."
                f"VoiceAgentTTSService; got {self.path!r}"
            )
        return found

    def make(self, **extra: Any) -> Any:
        """Construct it; `extra` arguments are left out where it does not accept them.

        Raises:
            InvalidRequestError: there is no such class, or it does not accept the arguments.
            ModuleNotFoundError: a package that its module needs is missing.
        """
        found: Any = self.load()
        accepted = inspect.signature(found).parameters
        known = {name: value for name, value in extra.items() if name in accepted}
        arguments = {**self.arguments, **known}
        try:
            settings = arguments.get("settings")
            if isinstance(settings, dict) and hasattr(found, "Settings"):
                arguments["settings"] = found.Settings(**settings)
            return found(**arguments)
        except (TypeError, ValueError) as error:
            reason = f"{found.__name__} does not accept these arguments: {error}"
            raise _invalid(reason) from error


def _invalid(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"target: {reason}", code=ErrorCode.INVALID_PARAM)
