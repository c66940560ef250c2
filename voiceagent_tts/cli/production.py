"""`voiceagent-tts doctor --production`: a checklist of what a server needs before people use it.

Checks the settings of this machine, and the running server that they describe. A point that no
program can judge names the page that says how to.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from voiceagent_tts.cli.doctor import Finding, own_address, print_finding
from voiceagent_tts.cli.server_request import ask
from voiceagent_tts.cli.settings import read_settings
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import CheckpointError, InvalidRequestError
from voiceagent_tts.hub import parse_id
from voiceagent_tts.tracing.exporter import exports_traces

_TIMEOUT_S = 5.0
_FULL_SHARE = 0.9
_FEWEST_SCRAPES = 10
_LONG_LEFT = timedelta(days=30)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class _Scrape:
    """What `/metrics` of the running server says; empty if it cannot be read.

    Attributes:
        samples: values by name and labels.
        problem: why it cannot be read.
    """

    samples: dict[str, float]
    problem: str | None = None

    def values(self, name: str) -> list[float]:
        """Return the values of a metric, for all its labels."""
        return [value for sample, value in self.samples.items() if sample.partition("{")[0] == name]

    def total(self, name: str) -> float:
        """Return the sum of a metric over its labels; 0 where it is missing."""
        return sum(self.values(name))


def examine_production(url: str | None, api_key: str | None) -> bool:
    """Check every point, print a line for each, and return whether none prevents production.

    Args:
        url: the running server; None for the address of the settings.
        api_key: a key with the scope `admin`, to read its metrics.
    """
    console, is_fit = Console(soft_wrap=True, highlight=False), True
    for finding in _findings(url, api_key):
        print_finding(console, finding)
        is_fit = is_fit and finding.verdict != "bad"
    console.print("No point prevents production." if is_fit else "Not fit for production yet.")
    return is_fit


def _findings(url: str | None, api_key: str | None) -> Iterator[Finding]:
    try:
        settings = read_settings({})
    except InvalidRequestError as error:
        yield Finding("settings", "bad", error.message)
        return
    scrape = _scrape(url or own_address(settings), api_key)
    yield _server(scrape)
    yield _memory(scrape)
    yield _read("load test", _load, scrape)
    yield _read("cache", _cache, scrape)
    yield _read("monitoring", _monitoring, scrape)
    yield _logs(settings)
    yield _backup(settings)
    yield _tls(settings)
    yield _limits(settings, scrape)
    yield _overflow(settings)
    yield _quality(settings)
    yield _read("cost", _cost, scrape)
    yield _revisions(settings)


def _read(what: str, check: Callable[[_Scrape], Finding], scrape: _Scrape) -> Finding:
    """Judge what only the metrics tell; without them, say that it is not known."""
    if scrape.problem is None:
        return check(scrape)
    return Finding(what, "note", "not known: the metrics of the server cannot be read")


def _scrape(url: str, api_key: str | None) -> _Scrape:
    try:
        return ask(url, "/metrics", api_key, _read_metrics, timeout_s=_TIMEOUT_S)
    except InvalidRequestError as error:
        return _Scrape({}, error.message)


def _read_metrics(reply: bytes) -> _Scrape:
    found = re.findall(r"^([^#\s].*) (\S+)$", reply.decode(), re.MULTILINE)
    return _Scrape({name: float(value) for name, value in found})


def _server(scrape: _Scrape) -> Finding:
    if scrape.problem is not None:
        remedy = (
            "start it, or name it with --url (the server itself, not a load balancer); where it "
            "has keys, set VOICEAGENT_TTS_API_KEY to one with the scope admin"
        )
        return Finding("server", "bad", scrape.problem, remedy)
    if not scrape.total("tts_ready"):
        return Finding("server", "bad", "it is not ready", "GET /health/ready gives the reason")
    return Finding("server", "ok", f"ready, with {scrape.total('tts_slots_total'):.0f} rows")


def _memory(scrape: _Scrape) -> Finding:
    """1. Headroom of GPU and memory."""
    used = scrape.values("tts_worker_gpu_memory_used_bytes")
    total = scrape.values("tts_worker_gpu_memory_total_bytes")
    shares = [part / whole for part, whole in zip(used, total, strict=True)]
    place = "GPU" if shares else "memory"
    share = max(shares) if shares else _memory_share()
    if share is None:
        return _page("headroom", "not known on this system", "monitoring.md#metrics")
    remedy = "GPU_MEMORY_GB limits a worker; move other programs away, or take fewer ROWS"
    verdict = "ok" if share < _FULL_SHARE else "bad"
    detail = f"{place} {share:.0%} in use"
    return Finding("headroom", verdict, detail, "" if verdict == "ok" else remedy)


def _memory_share() -> float | None:
    """The share of this machine's memory that is in use; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return 1 - kilobytes["MemAvailable"] / kilobytes["MemTotal"]


def _load(scrape: _Scrape) -> Finding:
    """2. Tested under load."""
    ended, gaps = scrape.total("tts_contexts_total"), scrape.total("tts_audio_underrun_seconds_sum")
    remedy = "make bench-load shows how many streams this machine carries; docs/scale.md"
    if ended < 100:
        detail = f"{ended:.0f} contexts so far say nothing about load"
        return Finding("load test", "note", detail, remedy)
    mean_ms = 1000 * gaps / ended
    verdict = "ok" if mean_ms < 10 else "bad"
    detail = f"{ended:.0f} contexts, {mean_ms:.1f} ms of gaps in each on average"
    return Finding("load test", verdict, detail, "" if verdict == "ok" else remedy)


def _cache(scrape: _Scrape) -> Finding:
    """3. Cache of repeated phrases and prompts."""
    hits = scrape.samples.get('tts_cache_segments_total{result="hit"}', 0)
    misses = scrape.samples.get('tts_cache_segments_total{result="miss"}', 0)
    hits += scrape.total("tts_worker_prefix_cache_hits_total")
    misses += scrape.total("tts_worker_prefix_cache_misses_total")
    if not hits + misses:
        return _page("cache", "nothing was looked up yet", "cache.md")
    return Finding("cache", "ok", f"{hits / (hits + misses):.0%} of the look-ups were hits")


def _monitoring(scrape: _Scrape) -> Finding:
    """4. Metrics are scraped, and alerts exist."""
    name = 'tts_http_requests_total{route="/metrics",status="200"}'
    scrapes = scrape.samples.get(name, 0)
    traces = "with traces" if exports_traces() else "without traces"
    detail = f"scraped {scrapes:.0f} times since its start, {traces}"
    if scrapes < _FEWEST_SCRAPES:
        remedy = (
            f"let Prometheus scrape /metrics, with deploy/prometheus/rules.yml; {_FEWEST_SCRAPES} "
            "scrapes show that it does"
        )
        return Finding("monitoring", "bad", detail, remedy)
    return Finding("monitoring", "ok", detail)


def _logs(settings: Settings) -> Finding:
    """5. Logs that a machine can read, and a record of changes."""
    missing = [
        f"VOICEAGENT_TTS_{name.upper()}"
        for name in ("log_json", "request_log")
        if not getattr(settings, name)
    ]
    if missing:
        return Finding("logs", "note", f"not set: {', '.join(missing)}", "docs/keys.md#request-log")
    return Finding("logs", "ok", "JSON lines and a request log")


def _backup(settings: Settings) -> Finding:
    """6. Backup of voices and weights."""
    folder = settings.clones_folder
    voices = len(list(folder.glob("*.safetensors"))) if folder.is_dir() else 0
    if not voices:
        return Finding(
            "backup",
            "ok",
            f"no clones under {folder}; weights can be downloaded again",
        )
    free = shutil.disk_usage(folder).free / 1e9
    remedy = "back this folder up: a clone cannot be made again without its recording"
    return Finding("backup", "note", f"{voices} clones in {folder}, {free:.0f} GB free", remedy)


def _tls(settings: Settings) -> Finding:
    """7. Encryption and keys."""
    if not settings.needs_key:
        remedy = "voiceagent-tts keys create NAME, with VOICEAGENT_TTS_KEYS; docs/keys.md"
        return Finding("security", "bad", "no API keys: anyone who connects may speak", remedy)
    if settings.ssl_certfile is not None:
        return _certificate(settings.ssl_certfile)
    if settings.is_loopback:
        return Finding("security", "ok", "keys; a proxy on this machine has to speak TLS")
    remedy = "set VOICEAGENT_TTS_SSL_CERTFILE, or put a proxy in front; docs/operations.md#tls"
    return Finding("security", "bad", "other machines reach it without TLS", remedy)


def _certificate(path: Path) -> Finding:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.expanduser().read_bytes())
    except (OSError, ValueError) as error:
        return Finding("security", "bad", f"{path}: {error}", "docs/operations.md#tls")
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    verdict = "ok" if left > _LONG_LEFT else "bad"
    remedy = "" if verdict == "ok" else "renew it, and restart the server"
    return Finding("security", verdict, f"keys; certificate for {left.days} more days", remedy)


def _limits(settings: Settings, scrape: _Scrape) -> Finding:
    """8. Limits of keys and addresses."""
    if not settings.key_limits.given and not settings.ip_limits.given:
        remedy = "set VOICEAGENT_TTS_KEY_LIMITS, such as contexts=20; docs/keys.md#limits"
        return Finding("limits", "bad", "one client can take every row", remedy)
    limits = f"keys {settings.key_limits or '-'}"
    if not settings.redis:
        remedy = "with several servers, set VOICEAGENT_TTS_REDIS"
        return Finding("limits", "note", f"{limits}, of this server alone", remedy)
    if scrape.problem is not None:
        return Finding("limits", "note", f"{limits}; not known whether Redis shares them")
    if not scrape.total("tts_limits_shared"):
        what = "refuses" if settings.without_redis == "refuse" else "counts by itself"
        remedy = "start Redis, or correct VOICEAGENT_TTS_REDIS; docs/keys.md#redis"
        return Finding("limits", "bad", f"{limits}; Redis is away: the server {what}", remedy)
    return Finding("limits", "ok", f"{limits}, shared in Redis")


def _overflow(settings: Settings) -> Finding:
    """9. What happens when the server fails, or is full."""
    if settings.overflow:
        return Finding("fall-back", "ok", "contexts beyond capacity go upstream")
    detail = f"{settings.workers * max(1, len(settings.gpus))} worker(s) for each model"
    return _page("fall-back", detail, "operations.md#several-replicas")


def _quality(settings: Settings) -> Finding:
    """10. Quality in every language served."""
    detail = f"listen to every language that {settings.engine or 'the engine'} serves"
    return _page("quality", detail, "numbers.md")


def _cost(scrape: _Scrape) -> Finding:
    """11. Cost: the share of capacity that is used."""
    rows = scrape.total("tts_slots_total")
    used = scrape.total("tts_slots_used") / rows if rows else 0.0
    return _page("cost", f"{used:.0%} of the rows in use now", "scale.md")


def _revisions(settings: Settings) -> Finding:
    """Models that stay the same until somebody changes them."""
    loose = [model for model in settings.models if not _is_pinned(model)]
    if loose and settings.engine != "pocket":
        remedy = "append @COMMIT to the id: a branch on the hub may change"
        return Finding("revisions", "note", f"not pinned: {', '.join(loose)}", remedy)
    return Finding("revisions", "ok", "nothing is loaded from a branch that may change")


def _is_pinned(model: str) -> bool:
    if Path(model).expanduser().is_dir():
        return True
    try:
        return bool(_COMMIT.fullmatch(parse_id(model).revision or ""))
    except CheckpointError:
        return False


def _page(what: str, detail: str, page: str) -> Finding:
    """A point that a person has to judge."""
    return Finding(what, "note", detail, f"docs/{page}")
