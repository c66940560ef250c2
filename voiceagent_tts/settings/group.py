"""What the settings of every subject have in common: how they are written, and their bounds."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode


class SettingsGroup(BaseModel):
    """Settings of one subject. Unknown names and infinite numbers are refused; empty is unset."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Leave the default of every setting whose value is an empty text, whoever wrote it.

        Charts, Compose files and shells pass on an unset value as an empty one.
        """
        return {
            name: value
            for name, value in given.items()
            if name not in cls.model_fields or not isinstance(value, str) or value.strip()
        }


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
    return json.loads(value) if isinstance(value, str) else value


def _has_home(path: Path) -> Path:
    try:
        path.expanduser()
    except RuntimeError:
        raise ValueError(f"expected a path, got {path}, whose user has no home; name it") from None
    return path


def _filled(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(value.strip() for value in values):
        raise ValueError("expected a list without empty values")
    return values


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list), AfterValidator(_filled)]
"""A list of texts, which `split_list` reads."""
UserPath = Annotated[Path, AfterValidator(_has_home)]
"""A path that may begin with `~`."""
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Field(ge=0.001, le=604_800)]
"""A time of at most a week: the kernel and the event loop count milliseconds in 32 bits."""
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]
"""A device of PyTorch."""
