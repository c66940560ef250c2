"""`voiceagent-tts keys`: made, listed, revoked, and refused with a reason."""

from pathlib import Path

import pytest

from testbed.command_line import Command, CommandHere
from testbed.redis_process import RedisProcess
from voiceagent_tts.settings.access import hash_key


def test_a_key_is_printed_once_and_stored_as_a_hash(
    command_here: CommandHere, tmp_path: Path
) -> None:
    """Standard output has the key alone, for a script; the list has everything but the key."""
    made = command_here("keys", "create", "agent", "--keys", "keys.json", "--limits", "contexts=2")
    secret = made.output.strip()
    assert made.status == 0 and made.output == f"{secret}\n" and "only this once" in made.errors
    stored = (tmp_path / "keys.json").read_text()
    assert secret not in stored and hash_key(secret) in stored
    both = ("--scope", "speak", "--scope", "voices:write")
    assert command_here("keys", "create", "studio", "--keys", "keys.json", *both).status == 0
    listed = command_here("keys", "list", "--keys", "keys.json")
    first, second = listed.output.splitlines()
    assert first.split("  ")[1:3] == ["speak", "contexts=2"] and first.endswith("  agent")
    assert second.split("  ")[1:3] == ["speak,voices:write", "-"]
    assert secret not in listed.output and hash_key(secret) not in listed.output
    key_id = first.split("  ")[0]
    revoked = command_here("keys", "revoke", key_id, "--keys", "keys.json")
    assert (revoked.status, revoked.errors) == (0, f"revoked key {key_id}\n")
    again = command_here("keys", "revoke", key_id, "--keys", "keys.json")
    assert again.status == 1 and "there is no key" in again.errors
    assert len(command_here("keys", "list", "--keys", "keys.json").output.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", "x"), "set VOICEAGENT_TTS_KEYS, or give --keys FILE"),
        (("list",), "set VOICEAGENT_TTS_KEYS, or give --keys FILE"),
        (("create", "", "--keys", "k"), "name: "),
        (("create", "a\nb", "--keys", "k"), "name: "),
        (("create", "x" * 129, "--keys", "k"), "name: "),
        (("create", "x", "--scope", "root", "--keys", "k"), "expected speak, voices:write, admin"),
        (("create", "x", "--limits", "contexts=0", "--keys", "k"), "--limits: contexts: "),
        (("create", "x", "--limits", "rows=1", "--keys", "k"), "--limits: rows: "),
        (("revoke", "\0", "--keys", "k"), "there is no key"),
        (("list", "--keys", "/dev/null/keys"), "cannot read the keys"),
        (("create", "x", "--keys", "/proc/keys.json"), "cannot write the keys"),
        (("list", "--keys", "a\0b"), "cannot read the keys"),
        (("list", "--keys", "redis://:port"), "expected a Redis address"),
        (("list", "--keys", "redis://127.0.0.1:1/0"), "cannot reach Redis at redis://127.0.0.1:1"),
    ],
)
def test_a_mistake_ends_in_one_line(
    arguments: tuple[str, ...], sentence: str, command_here: CommandHere
) -> None:
    """The line says what was expected; the status is 1, and nothing is printed."""
    outcome = command_here("keys", *arguments)
    assert (outcome.status, outcome.output) == (1, "")
    assert sentence in outcome.errors and outcome.errors.count("\n") == 1


def test_a_malformed_file_is_not_replaced(command_here: CommandHere, tmp_path: Path) -> None:
    """A key is not worth the keys that somebody else may restore."""
    (tmp_path / "keys.json").write_text("{")
    for arguments in (("create", "x"), ("revoke", "x"), ("list",)):
        outcome = command_here("keys", *arguments, "--keys", "keys.json")
        assert outcome.status == 1 and "has no valid keys" in outcome.errors
    assert (tmp_path / "keys.json").read_text() == "{"


async def test_the_setting_names_the_place(command: Command, tmp_path: Path) -> None:
    """Without `--keys` the commands and the server use the same place, from any source."""
    (tmp_path / "voiceagent-tts.toml").write_text('keys = "of-the-file.json"\n')
    assert (await command("keys", "create", "agent")).status == 0
    assert (tmp_path / "of-the-file.json").exists()
    outcome = await command("serve", environment={"VOICEAGENT_TTS_KEYS": "missing.json"})
    assert outcome.status == 1 and "there are no keys at missing.json" in outcome.errors
    assert "voiceagent-tts keys create NAME" in outcome.errors and "Traceback" not in outcome.errors


@pytest.mark.services
def test_keys_are_kept_in_redis(command_here: CommandHere, free_port: int) -> None:
    """The same commands, with an address in place of a file."""
    with RedisProcess(free_port) as redis:
        assert command_here("keys", "list", "--keys", redis.url).output == ""
        assert command_here("keys", "create", "agent", "--keys", redis.url).status == 0
        key_id = command_here("keys", "list", "--keys", redis.url).output.split("  ")[0]
        assert command_here("keys", "revoke", key_id, "--keys", redis.url).status == 0
