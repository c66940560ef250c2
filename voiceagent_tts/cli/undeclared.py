"""Options of a command that are declared as fields of a class: settings, or a dataclass.

`--rows 8`, `--rows=8`, `--log-json` and `--no-watermark` set the fields `rows`, `log_json` and
`watermark`.
"""

from collections import deque
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args

import typer
from pydantic import TypeAdapter, ValidationError

from voiceagent_tts.errors import InvalidRequestError

KEPT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of a command that keeps undeclared options."""


def options_in(context: typer.Context, types: Mapping[str, Any]) -> dict[str, str | bool]:
    """Read the undeclared options of a command; each sets one of the fields in `types`.

    Returns:
        The values as they were written, by the names of the fields.
    """
    given: dict[str, str | bool] = {}
    waiting = deque(context.args)
    while waiting:
        option, has_value, value = waiting.popleft().partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not has_value and _is_flag(types.get(name)):
            given[name] = True
        elif not has_value and _is_flag(types.get(name.removeprefix("no_"))):
            given[name.removeprefix("no_")] = False
        elif not option.startswith("--") or name not in types:
            raise _unknown(option, types)
        elif has_value or waiting:
            given[name] = value if has_value else waiting.popleft()
        else:
            raise InvalidRequestError(f"{option}: expected a value after it, got none")
    return given


def make(kind: type, given: Mapping[str, Any]) -> Any:
    """Return the dataclass `kind` with the values of options."""
    try:
        return TypeAdapter(kind).validate_python(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        expected = first["msg"].removeprefix("Input should be ").replace("'", "")
        raise InvalidRequestError(f"{option}: expected {expected}; got {first['input']}") from None


def _is_flag(kind: Any) -> bool:
    return bool in (kind, *get_args(kind))


def _unknown(option: str, types: Mapping[str, Any]) -> InvalidRequestError:
    known = [f"--{name.replace('_', '-')}" for name in types]
    near = " or ".join(get_close_matches(option, known, n=1))
    remedy = f"try {near}" if near else "--help says more"
    return InvalidRequestError(f"expected an option of this command, got {option}; {remedy}")
