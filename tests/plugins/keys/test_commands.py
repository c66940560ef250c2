"""`voiceagent-tts keys`: made, listed, revoked, and refused with a reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.command_line import Command, CommandHere
from testbed.redis_process import RedisProcess
from voiceagent_tts.settings.access import hash_key


@pytest.fixture(autouse=True)
def place(command_here: CommandHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of a test are in its folder."""
    monkeypatch.setenv("VOICEAGENT_TTS_KEYS", "keys.json")


def test_a_key_is_printed_once_and_stored_as_a_hash(
    command_here: CommandHere, tmp_path: Path
) -> None:
    """Standard output has the key alone, for a script; the list has everything but the key."""
    made = command_here("keys", "create", "agent", "--limits", "contexts=2")
    secret = made.output.strip()
    assert made.status == 0 and made.output == f"{secret}\n" and "only this once" in made.errors
    stored = (tmp_path / "keys.json").read_text()
    assert secret not in stored and hash_key(secret) in stored
    both = ("--scope", "speak", "--scope", "voices:write")
    assert command_here("keys", "create", "studio", *both).status == 0
    listed = command_here("keys", "list")
    first, second = listed.output.splitlines()
    assert first.split("  ")[1:3] == ["speak", "contexts=2"] and first.endswith("  agent")
    assert second.split("  ")[1:3] == ["speak,voices:write", "-"]
    assert secret not in listed.output and hash_key(secret) not in listed.output
    key_id = first.split("  ")[0]
    revoked = command_here("keys", "revoke", key_id)
    assert (revoked.status, revoked.errors) == (0, f"revoked key {key_id}\n")
    again = command_here("keys", "revoke", key_id)
    assert again.status == 1 and "there is no key" in again.errors
    assert len(command_here("keys", "list").output.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "arguments", "sentence"),
    [
        ("", ("create", "x"), "expected the location of the keys in VOICEAGENT_TTS_KEYS"),
        ("", ("list",), "expected the location of the keys in VOICEAGENT_TTS_KEYS"),
        ("k", ("create", ""), "name: "),
        ("k", ("create", "a\nb"), "name: "),
        ("k", ("create", "x" * 129), "name: "),
        ("k", ("create", "x", "--scope", "root"), "expected speak, voices:write, admin"),
        ("k", ("create", "x", "--limits", "contexts=0"), "--limits: contexts: "),
        ("k", ("create", "x", "--limits", "rows=1"), "--limits: rows: "),
        ("k", ("revoke", "\0"), "there is no key"),
        ("/dev/null/keys", ("list",), "keys: expected a file or folder that this process can use"),
        ("/proc/keys.json", ("create", "x"), "cannot write the keys"),
        ("redis://:port", ("list",), "expected a Redis address"),
        ("redis://127.0.0.1:1/abc", ("list",), "expected a Redis address"),
        ("redis://127.0.0.1:1/0?password=x&foo=bar", ("list",), "got redis://127.0.0.1:1/0?...\n"),
        ("rediss://127.0.0.1:1?ssl_cert_reqs=no", ("list",), "expected a Redis address"),
        ("redis://127.0.0.1:1/0", ("list",), "cannot reach Redis at redis://127.0.0.1:1"),
        ("unix:///no/redis.sock?db=1", ("list",), "cannot reach Redis at unix:///no/redis.sock"),
    ],
)
def test_a_mistake_ends_in_one_line(
    place: str,
    arguments: tuple[str, ...],
    sentence: str,
    command_here: CommandHere,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VOICEAGENT_TTS_KEYS", place)
    outcome = command_here("keys", *arguments)
    assert (outcome.status, outcome.output) == (1, "")
    assert sentence in outcome.errors and outcome.errors.count("\n") == 1


def test_a_key_that_cannot_be_shown_is_not_kept(command_here: CommandHere, tmp_path: Path) -> None:
    """Its secret would be lost, and the key be valid."""
    shell = 'exec "$0" -m voiceagent_tts keys create agent > /dev/full'
    environment = {**os.environ, "VOICEAGENT_TTS_KEYS": str(tmp_path / "keys.json")}
    made = subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable], env=environment, check=False, capture_output=True
    )
    assert made.returncode != 0 and b"No space left on device" in made.stderr
    assert (tmp_path / "keys.json").exists()
    assert command_here("keys", "list").output == ""


def test_a_malformed_file_is_not_replaced(command_here: CommandHere, tmp_path: Path) -> None:
    """A key is not worth the keys that somebody else may restore."""
    (tmp_path / "keys.json").write_text("{")
    for arguments in (("create", "x"), ("revoke", "x"), ("list",)):
        outcome = command_here("keys", *arguments)
        assert outcome.status == 1 and "has no valid keys" in outcome.errors
    assert (tmp_path / "keys.json").read_text() == "{"


async def test_the_setting_names_the_place(command: Command, tmp_path: Path) -> None:
    """The commands and the server use the same place, from any source."""
    (tmp_path / "voiceagent-tts.toml").write_text('keys = "of-the-file.json"\n')
    assert (await command("keys", "create", "agent")).status == 0
    assert (tmp_path / "of-the-file.json").exists()
    outcome = await command("serve", environment={"VOICEAGENT_TTS_KEYS": "missing.json"})
    assert outcome.status == 1 and "there are no keys at missing.json" in outcome.errors
    assert "voiceagent-tts keys create NAME" in outcome.errors and "Traceback" not in outcome.errors


@pytest.mark.services
def test_keys_are_kept_in_redis(
    command_here: CommandHere, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same commands, with an address in place of a file."""
    with RedisProcess(free_port) as redis:
        monkeypatch.setenv("VOICEAGENT_TTS_KEYS", redis.url)
        assert command_here("keys", "list").output == ""
        assert command_here("keys", "create", "agent").status == 0
        key_id = command_here("keys", "list").output.split("  ")[0]
        assert command_here("keys", "revoke", key_id).status == 0
