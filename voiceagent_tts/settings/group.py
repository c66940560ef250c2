"""What the settings of every subject have in common: they are frozen, and lists may be texts."""

import json
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_settings import NoDecode


class SettingsGroup(BaseModel):
    """Settings of one subject. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_list(value: object) -> object:
    """Accept a list as JSON or as text separated by commas, for environment variables."""
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        return json.loads(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def parse_object(value: object) -> object:
    """Accept an object as JSON, for environment variables and options."""
    return json.loads(value) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)]
"""A list of texts, which `split_list` reads."""
