"""`voiceagent-tts doctor --production`: a verdict or a page for every point of the checklist."""

import re
import urllib.request
from pathlib import Path

import pytest

from testbed.command_line import Command, CommandHere
from testbed.server_process import serving
from voiceagent_tts.cli.production import (
    _cache,
    _limits,
    _load,
    _memory,
    _monitoring,
    _Scrape,
)
from voiceagent_tts.config import Settings

ROOT = Path(__file__).parent.parent.parent
POINTS = (
    "server headroom cache monitoring logs backup security limits fall-back quality cost "
    "revisions".split()
)


def verdicts(output: str) -> dict[str, str]:
    """Return the verdict of each point."""
    found = re.findall(r"^(ok|note|bad) +(load test|\S+)", output, re.MULTILINE)
    return {what: verdict for verdict, what in found}


async def test_a_fresh_server_is_not_fit(command: Command) -> None:
    """Without keys, limits and monitoring the status is 1, and each point says what to do."""
    with serving() as server:  # one that other tests use may have stalled under their load
        outcome = await command("doctor", "--production", "--url", server.url)
    assert outcome.status == 1
    found = verdicts(outcome.output)
    assert found.keys() == {*POINTS, "load test"}
    assert found["server"] == "ok"
    assert [what for what, verdict in found.items() if verdict == "bad"] == [
        "monitoring", "security", "limits",
    ]  # fmt: skip
    assert "keys create" in outcome.output
    assert outcome.output.endswith("Not fit for production yet.\n")


async def test_a_server_that_is_set_up_is_fit(command: Command, tmp_path: Path) -> None:
    """With keys, limits, logs and a scraper the status is 0; what is left is for a person."""
    environment = {
        "api_keys": "secret",
        "key_limits": "contexts=20",
        "log_json": "true",
        "request_log": str(tmp_path / "requests.jsonl"),
        "voices_folder": str(tmp_path),
    }
    variables = {f"VOICEAGENT_TTS_{name.upper()}": text for name, text in environment.items()}
    with serving(**environment) as server:
        argv = ("doctor", "--production", "--url", server.websocket_url, "--api-key", "secret")
        for _ in range(10):
            scrape_as_prometheus(server.url)
        outcome = await command(*argv, environment=variables)
        assert outcome.status == 0, outcome.output
        assert "bad" not in verdicts(outcome.output).values()
        assert "secret" not in outcome.output
        refused = await command(*argv[:-1], "wrong", environment=variables)
    assert refused.status == 1
    assert re.search(r"^bad +server .*401", refused.output, re.MULTILINE)


def scrape_as_prometheus(url: str) -> None:
    """Read the metrics as Prometheus does."""
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer secret"})
    with urllib.request.urlopen(request, timeout=10) as response:
        response.read()


def test_a_server_that_is_away_and_wrong_settings_are_told(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """Nothing to scrape is a finding, and so is a setting that cannot be."""
    outcome = command_here("doctor", "--production", "--url", f"http://127.0.0.1:{free_port}")
    assert outcome.status == 1
    assert re.search(r"^bad +server +no server at 127", outcome.output, re.MULTILINE)
    unread = re.findall(
        r"^note +(load test|\S+) +not known: the metrics", outcome.output, re.MULTILINE
    )
    assert unread == ["load test", "cache", "monitoring", "cost"]
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", "-1")
    outcome = command_here("doctor", "--production")
    assert re.search(r"^bad +settings +port", outcome.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("check", "samples", "verdict"),
    [
        (
            _memory,
            {
                'tts_worker_gpu_memory_used_bytes{worker="m"}': 96.0,
                'tts_worker_gpu_memory_total_bytes{worker="m"}': 100.0,
            },
            "bad",
        ),
        (_load, {'tts_contexts_total{reason="complete"}': 12.0}, "note"),
        (
            _load,
            {
                'tts_contexts_total{reason="complete"}': 1000.0,
                "tts_audio_underrun_seconds_sum": 50.0,
            },
            "bad",
        ),
        (_cache, {"tts_worker_prefix_cache_hits_total": 9.0}, "ok"),
        (_monitoring, {}, "bad"),
    ],
)
def test_a_scrape_is_judged(check: object, samples: dict[str, float], verdict: str) -> None:
    """A full GPU, gaps under load, and a server that nobody scrapes are found."""
    assert check(_Scrape(samples)).verdict == verdict  # type: ignore[operator]


async def test_a_redis_that_is_away_is_told(command: Command, free_port: int) -> None:
    """Limits that the settings share in Redis, but that each server counts by itself meanwhile."""
    environment = {"key_limits": "contexts=20", "redis": f"redis://127.0.0.1:{free_port}/0"}
    variables = {f"VOICEAGENT_TTS_{name.upper()}": text for name, text in environment.items()}
    with serving(**environment) as server:
        outcome = await command(
            "doctor", "--production", "--url", server.url, environment=variables
        )
    assert re.search(r"^bad +limits .*Redis is away", outcome.output, re.MULTILINE)
    assert "shared in Redis" not in outcome.output


@pytest.mark.parametrize(
    ("scrape", "verdict"),
    [(_Scrape({"tts_limits_shared": 1.0}), "ok"), (_Scrape({}, "refused"), "note")],
)
def test_limits_count_as_shared_where_the_server_says_so(scrape: _Scrape, verdict: str) -> None:
    """Not because the settings say so."""
    settings = Settings.model_validate({"key_limits": "contexts=2", "redis": "redis://localhost/0"})
    assert _limits(settings, scrape).verdict == verdict


def test_every_page_exists() -> None:
    """The pages and headings that points name are in the documents."""
    source = (ROOT / "voiceagent_tts" / "cli" / "production.py").read_text()
    for page, heading in re.findall(r"\"(?:docs/)?([\w.]+\.md)(?:#([\w-]+))?\"", source):
        text = (ROOT / "docs" / page).read_text()
        slugs = {re.sub(r"[^\w-]", "", h.lower().replace(" ", "-"))
                 for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}  # fmt: skip
        assert not heading or heading in slugs, (page, heading)
