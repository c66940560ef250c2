"""Texts of voice agents in every language of the voices; `sentences.toml` says what each is for."""

import tomllib
from pathlib import Path

Texts = dict[str, tuple[str, ...]]
"""Language code -> texts."""

_KINDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _texts(kind: str) -> Texts:
    return {language: tuple(texts) for language, texts in _KINDS[kind].items()}


SENTENCES = _texts("spoken")
COMMA_LISTS: dict[str, str] = _KINDS["comma_lists"]
OTHERS = _texts("held_out")
ENGLISH = OTHERS.pop("en")
(NUMBERS,) = _texts("numbers").values()
SHORT_SENTENCES = _texts("short")
TEXTS = _texts("written")
