"""Entries of a lexicon: what is accepted, and what a mistake is answered with."""

from pathlib import Path
from typing import Any

import pytest

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import (
    MAX_CLIENT_ENTRIES,
    MAX_SAID_CHARS,
    MAX_WRITTEN_CHARS,
    Pronunciation,
    as_json,
    check_entries,
    read_lexicon,
)

SECRET = "zq"


def test_the_forms_of_an_entry() -> None:
    """A respelling, IPA between slashes, and an object with one or both; it survives JSON."""
    entries = check_entries(
        {
            "nginx": "engine x",
            "Siobhán": "/ʃɪˈvɔːn/",
            "GIF": {"say": "jif"},
            " New  York ": {"say": "Noo Yawk", "ipa": "nuː jɔːk"},
        }
    )
    assert entries == {
        "nginx": Pronunciation("engine x", None),
        "Siobhán": Pronunciation(None, "ʃɪˈvɔːn"),
        "GIF": Pronunciation("jif", None),
        "New York": Pronunciation("Noo Yawk", "nuː jɔːk"),
    }
    assert check_entries(as_json(entries)) == entries


@pytest.mark.parametrize(
    "given",
    [
        "a",
        None,
        {"": "x"},
        {f"{SECRET}\0": "x"},
        {f"{SECRET}\ud800": "x"},
        {SECRET: ""},
        {SECRET: "\x1b[31mx"},
        {SECRET: "//"},
        {SECRET: 1},
        {SECRET: {}},
        {SECRET: {"said": "x"}},
        {SECRET: {"say": "x", "more": "y"}},
        {SECRET * MAX_WRITTEN_CHARS: "x"},
        {SECRET: "x" * (MAX_SAID_CHARS + 1)},
        {f"{SECRET}{number}": "x" for number in range(MAX_CLIENT_ENTRIES + 1)},
    ],
    ids=repr,
)
def test_a_mistake_is_refused(given: Any) -> None:
    """Always with one code, and with a message that does not show the entry."""
    with pytest.raises(InvalidRequestError) as caught:
        check_entries(given)
    assert caught.value.code is ErrorCode.INVALID_PARAM
    assert SECRET not in caught.value.message
    assert caught.value.message.startswith("lexicon: ")


@pytest.mark.parametrize(
    "content",
    [b"nginx", b"a = 1", b'"" = "x"', b'a = "b"\na = "c"', b"\xff", b"a = " + b"[" * 5_000, None],
    ids=["a word", "a number", "empty", "twice", "not UTF-8", "nested", "missing"],
)
def test_a_file_with_a_mistake_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Also a file that does not exist."""
    path = tmp_path / "said.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="said.toml") as caught:
        read_lexicon(path)
    assert caught.value.code is ErrorCode.INVALID_PARAM


def test_a_file_is_read(tmp_path: Path) -> None:
    """As TOML, one entry a line."""
    path = tmp_path / "said.toml"
    path.write_text('nginx = "engine x"\n"New York" = { ipa = "nuː jɔːk" }\n', encoding="utf-8")
    assert read_lexicon(path) == {
        "nginx": Pronunciation("engine x", None),
        "New York": Pronunciation(None, "nuː jɔːk"),
    }
