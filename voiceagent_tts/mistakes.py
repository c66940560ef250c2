"""What is wrong with data that Pydantic has refused, in words for people."""

import re
from typing import Any

_TYPE_OR_BODY = re.compile(r"[A-Z[]|^body$")
"""Parts of a place that are no field: `VoiceId`, `function-after[...]`, a request's body."""


def mistake_in(error: Any) -> tuple[str, str]:
    """The field of the first mistake that a `pydantic.ValidationError` has, and what is wrong.

    The value is left out: it may be text to speak, or a key.
    """
    first = error.errors()[0]
    names = [str(part) for part in first["loc"] if not _TYPE_OR_BODY.search(str(part))]
    mistake = "Input should be a file" if "UploadFile" in first["msg"] else first["msg"]
    return ".".join(names), mistake.removeprefix("Value error, ")
