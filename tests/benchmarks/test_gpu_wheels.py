"""The packages for a GPU machine: all that ours require, and none that it already has."""

import pytest

from benchmarks.gpu.wheels import check_total, needs, pinned


def test_needs_are_followed_to_their_end() -> None:
    """A requirement of a requirement is included, with the version installed here."""
    found = needs(["voiceagent-tts[server]"], "3.12")
    assert {"fastapi", "starlette", "anyio", "pydantic-core", "pyzmq", "soxr"} <= set(found)
    assert all(version[0].isdigit() for version in found.values())


def test_extras_that_were_not_asked_for_stay_out() -> None:
    """The base install has no server."""
    found = needs(["voiceagent-tts"], "3.12")
    assert "websockets" in found
    assert not {"fastapi", "torch", "pipecat-ai"} & set(found)


def test_what_the_machine_has_is_not_brought() -> None:
    """torch, transformers, numpy and their own requirements are left out."""
    names = {
        folder: {line.partition("==")[0] for line in lines}
        for folder, lines in pinned("3.12").items()
    }
    assert {"pydantic", "typer", "rich", "soxr"} <= names["engine"]
    assert {"fastapi", "pyzmq", "pytest-asyncio", "structlog"} <= names["server"]
    assert not names["engine"] & names["server"]
    brought = names["engine"] | names["server"]
    assert not {"torch", "transformers", "numpy", "tokenizers", "voiceagent-tts"} & brought
    assert "av" not in brought, "35 MB that a load of PCM does not use"


def test_wheels_that_no_machine_accepts_are_refused() -> None:
    """What is copied is limited to 60 MiB; the message names the largest file."""
    check_total({"a.whl": 56 * 2**20, "b.whl": 4 * 2**20})
    with pytest.raises(SystemExit, match=r"60\.0 MiB, expected at most 60 MiB; the largest is a"):
        check_total({"a.whl": 56 * 2**20, "b.whl": 4 * 2**20 + 1})
