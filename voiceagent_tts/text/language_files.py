"""Reads the files of `text/languages`: what the rules know of each language."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_file(name: str) -> dict[str, Any]:
    """Return the entries of a file, such as that of a language, by its code."""
    file = files("voiceagent_tts.text").joinpath("languages", f"{name}.toml")
    return tomllib.loads(file.read_text("utf-8"))
