"""`voiceagent-tts doctor --production`: is a server with these settings safe for strangers?

Strangers are callers with keys who do not trust each other, and whom the operator does not trust.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from ipaddress import ip_network
from typing import Literal

from rich.console import Console

from voiceagent_tts.cli.settings import read_server_settings
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.plugins.checks.doctor import Finding, print_finding
from voiceagent_tts.plugins.keys.key_store import open_store, read_document
from voiceagent_tts.plugins.keys.keys import Key, Scope
from voiceagent_tts.settings.access import Quota, is_redis

_LIMITS = (
    "VOICEAGENT_TTS_KEY_LIMITS=contexts=20,contexts_per_s=5,chars_per_minute=20000,"
    "audio_s_per_day=36000"
)
_MOST_OF_KEYS = {
    "contexts": 256,
    "contexts_per_s": 100,
    "chars_per_minute": 1_000_000,
    "audio_s_per_day": 8_640_000,
}
"""Highest limits of a key: half of the rows of the embedded voice, and a hundred calls all day."""
_MOST_OF_ADDRESSES = {"contexts": 1_000, "contexts_per_s": 500}
"""Highest limits of an address, which many callers may share."""
_WIDE = 65_536
"""Addresses of a network of proxies, of which a private one has more than any proxy needs."""
_PERSIST = "start Redis with --appendonly yes, its data on a disk that outlives it"


async def examine_production() -> bool:
    """Check the settings, print a line for each finding, and return whether none is bad."""
    console, is_safe = Console(soft_wrap=True, highlight=False), True
    try:
        settings = read_server_settings({})
    except InvalidRequestError as error:
        print_finding(console, Finding("settings", "bad", error.message))
        return False
    async for finding in findings(settings):
        print_finding(console, finding)
        is_safe = is_safe and finding.verdict != "bad"
    console.print("Safe for strangers." if is_safe else "Not safe for strangers yet.")
    return is_safe


async def findings(settings: Settings) -> AsyncIterator[Finding]:
    """Check who may use the server, how much of it, and which data survives a restart."""
    yield await _keys(settings)
    yield _limits("limits of keys", settings.key_limits, _MOST_OF_KEYS, _LIMITS)
    yield _limits(
        "limits of addresses", settings.ip_limits, _MOST_OF_ADDRESSES,
        "VOICEAGENT_TTS_IP_LIMITS=contexts=60,contexts_per_s=15",
    )  # fmt: skip
    for finding in _rest(settings):
        yield finding
    for address in dict.fromkeys(filter(None, (settings.keys, settings.redis))):
        if is_redis(address):
            yield await _redis(address)


async def _keys(settings: Settings) -> Finding:
    remedy = "VOICEAGENT_TTS_KEYS, and `voiceagent-tts keys create NAME` for each caller"
    if settings.allow_anonymous or not settings.needs_key:
        return Finding("keys", "bad", "anyone may use the server", remedy)
    if settings.api_keys or settings.keys is None:
        detail = "each key of VOICEAGENT_TTS_API_KEYS has all scopes, admin too"
        return Finding("keys", "bad", detail, remedy)
    store = open_store(settings.keys)
    try:
        document = await read_document(store)
    except VoiceAgentError as error:
        return Finding("keys", "bad", error.message, "mend it, or start it")
    finally:
        await store.close()
    return _stored_keys(document.keys, settings.key_limits)


def _stored_keys(keys: tuple[Key, ...], general: Quota) -> Finding:
    """Whether there are keys for callers, none of them an admin's, and limits of their own fit."""
    callers = [key for key in keys if Scope.ADMIN not in key.scopes]
    if not callers:
        what = "every key has the scope admin" if keys else "there is no key"
        remedy = "`voiceagent-tts keys create NAME` for each caller: it may speak, and no more"
        return Finding("keys", "bad", what, remedy)
    for key in callers:
        limits = _limits("keys", key.limits.over(general), _MOST_OF_KEYS, "")
        if limits.verdict != "ok" and key.limits.given:
            remedy = f"`voiceagent-tts keys revoke {key.id}`, and create one with lower limits"
            return Finding("keys", "bad", f"{key.id}: {limits.detail}", remedy)
    return Finding("keys", "ok", f"{len(callers)} for callers, without the scope admin")


def _limits(what: str, quota: Quota, most: Mapping[str, int], remedy: str) -> Finding:
    if missing := sorted(most.keys() - quota.given.keys()):
        return Finding(what, "bad", f"no limit of {', '.join(missing)}", remedy)
    if high := [name for name, number in quota.given.items() if number > most.get(name, number)]:
        detail = ", ".join(f"{name} above {most[name]}" for name in high)
        return Finding(what, "bad", f"limits that limit nothing: {detail}", remedy)
    return Finding(what, "ok", str(quota))


def _rest(settings: Settings) -> Iterator[Finding]:
    yield _either(
        "clones", settings.voices_per_key is not None, "bad", "a key may add any number",
        "VOICEAGENT_TTS_VOICES_PER_KEY=20",
    )  # fmt: skip
    yield _either(
        "consents", settings.consent_mode == "recording", "note", "a line of text clones a voice",
        "VOICEAGENT_TTS_CONSENT_MODE=recording",
    )  # fmt: skip
    yield _either(
        "webhooks", not settings.webhook_private, "bad", "callers may send to private networks",
        "unset VOICEAGENT_TTS_WEBHOOK_PRIVATE",
    )  # fmt: skip
    yield _proxies(settings.trusted_proxies)
    yield _either(
        "TLS", settings.has_tls or settings.is_loopback, "note",
        f"{settings.host} is reached without encryption, unless by a proxy on a private network",
        "a proxy that ends TLS, or VOICEAGENT_TTS_SSL_CERTFILE",
    )  # fmt: skip
    yield _either(
        "counting", settings.redis is not None, "note",
        "limits and usage begin anew with each start, and on each server",
        "VOICEAGENT_TTS_REDIS=redis://HOST:6379/0",
    )  # fmt: skip
    yield _either(
        "watermark", settings.watermark, "note", "audio of this server cannot be recognized",
        "unset VOICEAGENT_TTS_WATERMARK",
    )  # fmt: skip


def _proxies(trusted: tuple[str, ...]) -> Finding:
    """Whether only a proxy may state the address of a client."""
    networks = [ip_network(each) for each in trusted if each != "*"]
    several = [each for each in networks if each.num_addresses > 1]
    if "*" in trusted or any(not each.is_private for each in several):
        return Finding(
            "proxies", "bad", "anyone on the internet may state the address that limits count by",
            "VOICEAGENT_TTS_TRUSTED_PROXIES=ADDRESS of the proxy, or its private network",
        )  # fmt: skip
    return _either(
        "proxies", all(each.num_addresses <= _WIDE for each in several), "note",
        f"all of {', '.join(map(str, several))} may state the address that limits count by",
        "VOICEAGENT_TTS_TRUSTED_PROXIES=ADDRESS of the proxy, or a smaller network",
    )  # fmt: skip


def _either(
    what: str, is_good: bool, otherwise: Literal["note", "bad"], problem: str, remedy: str
) -> Finding:
    if is_good:
        return Finding(what, "ok", "as it should be")
    return Finding(what, otherwise, problem, remedy)


async def _redis(address: str) -> Finding:
    """Whether a Redis persists its data: keys, usage and jobs."""
    from voiceagent_tts.plugins.redis.connection import away_errors, connect, shown

    what, client = f"Redis {shown(address)}", connect(address)
    try:
        about = await client.info()
    except away_errors() as error:
        return Finding(what, "bad", f"cannot be asked ({type(error).__name__})", "start it")
    finally:
        await client.aclose()
    policy = about.get("maxmemory_policy", "noeviction")
    if about.get("maxmemory") and policy.startswith("allkeys"):
        remedy = "maxmemory-policy noeviction, or volatile-lru"
        return Finding(what, "bad", f"may evict keys of callers ({policy})", remedy)
    if not about.get("aof_enabled"):
        return Finding(what, "bad", "keys and usage are lost when it restarts", _PERSIST)
    return Finding(what, "ok", "keeps what is in it")
