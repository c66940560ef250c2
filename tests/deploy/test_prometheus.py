"""The alerts: valid, tested on scripted data, and about metrics that a server really has."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml

from testbed.missing import require_program
from testbed.promql import metrics_in, scraped_names
from testbed.waiting import PATIENCE_S, until, wait_until
from voiceagent_tts.server.serve import RunningServer


class PrometheusProcess:
    """Prometheus with the scrape job of a configuration, on other targets; a context manager.

    Args:
        config: the configuration, whose rule files lie beside it.
        targets: `host:port` of the servers.
        port: where it listens.
        folder: for its data.
    """

    def __init__(self, config: Path, targets: Sequence[str], port: int, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._config = _retargeted(config, targets, folder)
        self._listen = f"127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of a PromQL expression, now."""
        return self._get("query", query=expression)["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule, with its health and state."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            return json.load(response)["data"]

    def __enter__(self) -> Self:
        argv = [
            require_program("prometheus"), f"--config.file={self._config}",
            f"--web.listen-address={self._listen}",
            f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=warn",
        ]  # fmt: skip
        self._process = subprocess.Popen(argv)
        wait_until(self._is_ready, "Prometheus starts")
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=1) as response:
                return response.status == 200
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _retargeted(path: Path, targets: Sequence[str], folder: Path) -> Path:
    """Write the configuration with other targets and without a key, and return the file."""
    config = yaml.safe_load(path.read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(path.parent / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    del job["authorization"], job["dns_sd_configs"]
    job["static_configs"] = [{"targets": list(targets)}]
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump(config))
    return written


FOLDER = Path(__file__).parent.parent.parent / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]


async def test_every_metric_of_a_rule_is_scraped(server: RunningServer) -> None:
    """Alerts use metrics that a live server shows, or that the rules record from such metrics."""
    known = await scraped_names(server) | {rule["record"] for rule in RULES if "record" in rule}
    named = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
    assert len(named) > 15
    assert named - known == set()


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    """Scripted data fires each alert, and its texts name the place."""
    tests = yaml.safe_load((FOLDER / "rules.test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert {rule["alert"] for rule in ALERTS} == fired
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "$labels.instance" in rule["annotations"]["description"]


@pytest.mark.services
@pytest.mark.parametrize("argv", ["check rules rules.yml", "test rules rules.test.yml"])
def test_promtool_accepts_the_rules(argv: str) -> None:
    """Prometheus's own tool reads the rules, and fires every alert on the scripted data."""
    promtool = require_program("promtool", package="prometheus")
    result = subprocess.run(
        [promtool, *argv.split()], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.services
async def test_promtool_accepts_the_metrics(server: RunningServer) -> None:
    """Names, types and help of a live scrape follow Prometheus's rules."""
    promtool = require_program("promtool", package="prometheus")
    async with httpx.AsyncClient() as http:
        scraped = (await http.get(f"{server.url}/metrics")).text
    result = subprocess.run(
        [promtool, "check", "metrics"], input=scraped, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.services
async def test_prometheus_scrapes_a_server_and_notices_a_drain(
    server: RunningServer, free_port: int, tmp_path: Path
) -> None:
    """A real Prometheus evaluates every rule on a live scrape; a drain makes NotReady pending."""
    target = server.url.removeprefix("http://")
    config = FOLDER / "prometheus.yml"
    with PrometheusProcess(config, [target], free_port, tmp_path) as prometheus:

        def values(expression: str) -> list[str]:
            return [sample["value"][1] for sample in prometheus.query(expression)]

        await until(lambda: values("tts_ready") == ["1"], "a scrape")
        assert values('up{job="voiceagent-tts"}') == ["1"]
        await until(lambda: {r["health"] for r in prometheus.rules()} == {"ok"}, "every rule ran")
        assert len(prometheus.rules()) == len(RULES)
        assert [r["name"] for r in prometheus.rules() if r.get("state") == "firing"] == []
        server.state.is_draining = True
        pending = 'ALERTS{alertname="NotReady", alertstate="pending"}'
        await until(lambda: values(pending) == ["1"], "the alert notices the drain")


def test_the_page_lists_every_alert() -> None:
    """docs/monitoring.md has each alert with its severity."""
    page = FOLDER.parent.parent / "docs" / "monitoring.md"
    listed = dict(re.findall(r"^\| `(\w+)` \| (warning|critical) \|", page.read_text(), re.M))
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
