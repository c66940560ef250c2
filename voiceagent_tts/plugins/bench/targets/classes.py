"""Services and plugins by import path: `MODULE.CLASS` and the arguments of its constructor."""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A service by import path, with the arguments of its constructor."""

    path: str
    arguments: dict[str, Any]

    def make(self, **extra: Any) -> Any:
        """Construct it; `extra` arguments are left out where it does not take them.

        Raises:
            InvalidRequestError: there is no such class, or it does not take the arguments.
            ModuleNotFoundError: a package that its module needs is missing.
        """
        return make(class_at(self.path), self.arguments, **extra)


def class_at(path: str) -> type:
    """The class with this import path.

    Raises:
        InvalidRequestError: there is no such class.
        ModuleNotFoundError: a package that its module needs is missing.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (AttributeError, ValueError):
        found = None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        found = None
    if not inspect.isclass(found):
        raise InvalidRequestError(
            f"target: expected MODULE.CLASS, such as voiceagent_tts.adapters.pipecat."
            f"VoiceAgentTTSService; got {path!r}",
            code=ErrorCode.INVALID_PARAM,
        )
    return found


def make(found: Any, arguments: dict[str, Any], **extra: Any) -> Any:
    """Construct `found`; `extra` arguments are left out where it does not take them.

    `settings` as an object becomes the class's own `Settings`, as Pipecat's services expect.

    Raises:
        InvalidRequestError: it does not take `arguments`.
    """
    accepted = inspect.signature(found).parameters
    arguments = dict(arguments)
    arguments |= {name: value for name, value in extra.items() if name in accepted}
    try:
        if isinstance(settings := arguments.get("settings"), dict) and hasattr(found, "Settings"):
            arguments["settings"] = found.Settings(**settings)
        return found(**arguments)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"target: {found.__name__} does not take these arguments: {error}",
            code=ErrorCode.INVALID_PARAM,
        ) from error
