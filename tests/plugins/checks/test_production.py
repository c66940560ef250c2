"""`doctor --production`: settings that are safe for strangers, and each that is not."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.command_line import CommandHere
from testbed.missing import require_program
from testbed.papers import ROOT
from testbed.redis_process import RedisProcess
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.checks.production import findings
from voiceagent_tts.plugins.keys.key_store import open_store
from voiceagent_tts.plugins.keys.keys import Key, KeyDocument, Scope, make_key
from voiceagent_tts.settings.access import Quota

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
DOCUMENTED = dict(
    re.findall(r"^(\w+)=(.*)$", PAGE.split("# production.env")[1].split("```")[0], re.MULTILINE)
)

DOCUMENTED_LIMITS = Quota.model_validate(DOCUMENTED["VOICEAGENT_TTS_KEY_LIMITS"]).given

CALLER = make_key("caller", frozenset({Scope.SPEAK}), Quota()).key


def store_keys(*keys: Key) -> None:
    """Write the file that VOICEAGENT_TTS_KEYS names."""
    Path("keys.json").write_text(KeyDocument(keys=keys).dump())


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The documented settings, without their Redis."""
    monkeypatch.chdir(tmp_path)
    for name, value in DOCUMENTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VOICEAGENT_TTS_KEYS", "keys.json")
    store_keys(CALLER)
    monkeypatch.delenv("VOICEAGENT_TTS_REDIS")


async def verdicts(settings: Settings) -> dict[str, str]:
    """Return the verdict of each finding."""
    return {finding.what: finding.verdict async for finding in findings(settings)}


async def test_the_documented_settings_are_safe(production: None) -> None:
    """All findings are good; without a Redis, one says what is forgotten."""
    found = await verdicts(Settings())
    assert {what for what, verdict in found.items() if verdict != "ok"} == {"counting"}


def test_every_finding_is_two_columns(command_here: CommandHere) -> None:
    """What was checked stands apart from what was found, however long its name is."""
    lines = command_here("doctor", "--production").output.splitlines()
    assert "bad   limits of addresses  no limit of contexts, contexts_per_s" in lines
    assert {line[25:27] for line in lines[:-1]} == {"  "}
    assert all(line[27] != " " for line in lines[:-1])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"keys": ""}, "keys"),
        ({"allow_anonymous": "true"}, "keys"),
        ({"api_keys": "one key with all scopes"}, "keys"),
        ({"key_limits": ""}, "limits of keys"),
        *[
            ({"key_limits": ",".join(f"{each}=9" for each in Quota.model_fields if each != name)},
             "limits of keys")
            for name in Quota.model_fields
        ],
        *[
            ({"key_limits": str(Quota.model_validate(DOCUMENTED_LIMITS | {name: 1_000_000_000}))},
             "limits of keys")
            for name in Quota.model_fields
        ],
        ({"ip_limits": ""}, "limits of addresses"),
        ({"ip_limits": "contexts=1000000000,contexts_per_s=15"}, "limits of addresses"),
        ({"trusted_proxies": "*"}, "proxies"),
        ({"trusted_proxies": "0.0.0.0/0"}, "proxies"),
        ({"trusted_proxies": "127.0.0.1,::/0"}, "proxies"),
        ({"trusted_proxies": "8.0.0.0/8"}, "proxies"),
        ({"host": "0.0.0.0", "trusted_proxies": "*"}, "proxies"),
        ({"ip_limits": "contexts=9"}, "limits of addresses"),
        ({"voices_per_key": ""}, "clones"),
        ({"webhook_private": "true"}, "webhooks"),
    ],
)  # fmt: skip
async def test_a_gap_is_found(change: dict[str, str], what: str, production: None) -> None:
    """Each makes the server unsafe, and nothing else is called bad."""
    found = await verdicts(Settings.model_validate(change))
    assert [name for name, verdict in found.items() if verdict == "bad"] == [what]


@pytest.mark.parametrize(
    ("proxies", "verdict"),
    [("10.0.0.0/8", "note"), ("10.2.0.0/16", "ok"), ("127.0.0.1,::1", "ok"), ("8.8.8.8", "ok")],
)
async def test_a_wide_network_of_proxies_is_noted(
    proxies: str, verdict: str, production: None
) -> None:
    """Whoever has one of its addresses may state that of a client."""
    settings = Settings.model_validate({"trusted_proxies": proxies})
    assert (await verdicts(settings))["proxies"] == verdict


@pytest.mark.parametrize(
    "keys",
    [
        (),
        (make_key("all", frozenset(Scope), Quota()).key,),
        (CALLER, make_key("free", frozenset({Scope.SPEAK}), Quota(contexts=1_000_000)).key),
    ],
    ids=["no key", "one key with all scopes", "a key with a high limit of its own"],
)
async def test_a_gap_in_the_keys_is_found(keys: tuple[Key, ...], production: None) -> None:
    """Callers have keys without the scope admin, and none whose limits limit nothing."""
    store_keys(*keys)
    assert (await verdicts(Settings()))["keys"] == "bad"
    store_keys(CALLER, make_key("metrics", frozenset({Scope.ADMIN}), Quota()).key)
    assert (await verdicts(Settings.model_validate({"trusted_proxies": "10.0.0.0/8"})))[
        "keys"
    ] == "ok"


async def test_keys_that_cannot_be_read_are_found(production: None) -> None:
    """A file that is none of keys is bad, and ends nothing."""
    Path("keys.json").write_text("[")
    assert (await verdicts(Settings()))["keys"] == "bad"


@pytest.fixture
def redis_url(free_port: int, tmp_path: Path) -> Iterator[str]:
    """The address of a Redis in memory."""
    with RedisProcess(free_port, tmp_path) as redis:
        yield redis.url


def command(redis: str, *argv: str) -> None:
    """Send a command to Redis."""
    port = redis.split(":")[2].partition("/")[0]
    answer = subprocess.check_output([require_program("redis-cli"), "-p", port, *argv], text=True)
    assert answer.strip() == "OK", answer


@pytest.mark.services
async def test_a_redis_that_forgets_or_evicts_keys_is_found(
    redis_url: str, production: None
) -> None:
    """The documented block says redis://; that server must persist, and evict no key."""
    settings = Settings.model_validate({"keys": redis_url, "redis": redis_url})
    store = open_store(redis_url)
    await store.change(lambda _: KeyDocument(keys=(CALLER,)))
    await store.close()
    what = f"Redis {redis_url}"
    assert (await verdicts(settings))[what] == "bad", "in memory only"
    command(redis_url, "CONFIG", "SET", "appendonly", "yes")
    assert set((await verdicts(settings)).values()) == {"ok"}
    command(redis_url, "CONFIG", "SET", "maxmemory", "100mb")
    assert (await verdicts(settings))[what] == "ok"
    command(redis_url, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert (await verdicts(settings))[what] == "bad"


def test_the_command_ends_with_the_verdict(
    command_here: CommandHere, production: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 0 if nothing is bad; otherwise 1, with what to write."""
    outcome = command_here("doctor", "--production")
    assert (outcome.status, outcome.output.splitlines()[-1]) == (0, "Safe for strangers.")
    monkeypatch.setenv("VOICEAGENT_TTS_KEY_LIMITS", "contexts=200")
    outcome = command_here("doctor", "--production")
    assert outcome.status == 1
    assert "-> VOICEAGENT_TTS_KEY_LIMITS=contexts=20,contexts_per_s=5" in outcome.output
    monkeypatch.setenv("VOICEAGENT_TTS_KEY_LIMITS", "contexts")
    outcome = command_here("doctor", "--production")
    assert outcome.status == 1 and "bad   settings" in outcome.output
