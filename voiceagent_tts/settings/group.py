"""What the settings of every subject have in common: how they are written, and their bounds."""

import json
import os
from errno import EACCES, ENOENT
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

_MAX_FILE_BYTES = 16 << 20


class Needs:
    """Marks a setting that has no effect alone; the start of a server warns of it.

    Args:
        any_of: what it needs one of: settings (`redis`), or values of them (`engine=qwen3`).
    """

    def __init__(self, *any_of: str) -> None:
        self.any_of = any_of


class SettingsGroup(BaseModel):
    """Settings of one subject. Unknown names and infinite numbers are refused; empty is unset.

    Texts lose the white space around them, wherever they are written, and are refused with quotes
    around them or control characters inside.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_texts(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Strip texts, and leave the default of a setting whose text is empty.

        Charts, Compose files and shells pass on an unset value as an empty one.

        Raises:
            ValueError: a text has quotes around it or control characters.
        """
        read: dict[str, Any] = {}
        for name, value in given.items():
            if not isinstance(value, str):
                read[name] = value
            elif (text := value.strip()) or name not in cls.model_fields:
                read[name] = _plain(name, text)
        return read


def _plain(name: str, text: str) -> str:
    """Refuse characters that would become a part of the value by mistake.

    Raises:
        ValueError: quotes around the text, which some readers of .env files keep, or control
            characters in it; JSON may have line breaks.
    """
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        raise ValueError(f"{name}: expected a value without quotes around it; remove them")
    if text[:1] not in ("[", "{") and any(ord(character) < 32 for character in text):
        raise ValueError(f"{name}: expected one line without control characters")
    return text


def split_list(value: object) -> object:
    """Accept a list as JSON or as text separated by commas, for environment variables."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return separated(value)


def separated(text: str) -> list[str]:
    """Split a text at its commas; the last value may have one after it."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("expected values separated by commas, got none; leave it empty for none")
    return parts


def parse_object(value: object) -> object:
    """Accept an object as JSON, for environment variables and options."""
    return json.loads(value, parse_constant=_no_json) if isinstance(value, str) else value


def _no_json(constant: str) -> None:
    """Refuse NaN and infinity, which Python reads and other programs do not."""
    raise ValueError(f"expected JSON, got {constant} in it")


def refused(path: Path | str, error: OSError, kind: str = "file") -> str:
    """The sentence for the path of a setting that the system refuses; begins after its name."""
    return (
        f"expected a {kind} that this process can use, got {path} ({error.strerror or error}); "
        "name another one, or change its permissions"
    )


def check_rights(path: Path, needed: int) -> None:
    """Raise the system's error if this process may not use a path in a way of `os.access`."""
    if not os.access(path, needed):
        raise PermissionError(EACCES, os.strerror(EACCES))


def allowed(path: Path) -> Path:
    """Refuse a path that the system refuses to look at; it may be missing."""
    try:
        path.expanduser().stat()
    except RuntimeError:
        raise ValueError(f"expected a path, got {path}, whose user has no home; name it") from None
    except FileNotFoundError:
        return path
    except OSError as error:
        raise ValueError(refused(path, error, "file or folder")) from None
    return path


def _no_device(path: Path) -> Path:
    """Refuse folders, pipes, which wait for the other side, and devices."""
    file = path.expanduser()
    if file.exists() and not file.is_file():
        raise ValueError(f"expected a regular file, got {path}; name another one")
    return path


def regular(path: Path) -> Path:
    """Refuse also files too large to be meant, and those that this process may not read."""
    file = _no_device(path).expanduser()
    if file.exists():
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError(f"expected a file of at most {_MAX_FILE_BYTES} bytes, got {path}")
        try:
            check_rights(file, os.R_OK)
        except OSError as error:
            raise ValueError(refused(path, error)) from None
    return path


def _existing(path: Path) -> Path:
    if not path.expanduser().exists():
        raise ValueError(refused(path, FileNotFoundError(ENOENT, os.strerror(ENOENT))))
    return path


def _filled(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(value.strip() for value in values):
        raise ValueError("expected a list without empty values")
    for number, value in enumerate(values, start=1):
        _plain(f"value {number}", value)
    return values


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list), AfterValidator(_filled)]
"""A list of texts, which `split_list` reads."""
UserPath = Annotated[Path, AfterValidator(allowed)]  # a path that may begin with `~`
LogFile = Annotated[UserPath, AfterValidator(_no_device)]
"""The path of a file that grows."""
UserFile = Annotated[UserPath, AfterValidator(regular)]
"""The path of a file that is made where it is missing."""
InputFile = Annotated[UserFile, AfterValidator(_existing)]
"""The path of a file that is read at the start."""
Processes = Annotated[int, Field(ge=1, le=1024)]
"""A number of processes or threads: more than any machine has processors for."""
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Field(ge=0.001, le=604_800)]
"""A time of at most a week: the kernel and the event loop count milliseconds in 32 bits."""
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]  # a device of PyTorch
