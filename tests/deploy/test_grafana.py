"""The dashboard, as far as it can be checked without Grafana: its model, and its expressions."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.missing import require_program
from testbed.promql import metrics_in, scraped_names
from testbed.servers import StartServer

FOLDER = Path(__file__).parent.parent.parent / "deploy"
RULES = FOLDER / "prometheus" / "rules.yml"
TEXT = (FOLDER / "grafana" / "voiceagent-tts.json").read_text()
DASHBOARD = json.loads(TEXT)
PANELS = DASHBOARD["panels"]


def expressions() -> list[str]:
    """Return every PromQL expression of the dashboard, with Grafana's variables replaced."""
    found = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    found += [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    return [each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in found]


def test_the_dashboard_uses_its_own_variables_only() -> None:
    """Every `$name` is a variable of the dashboard or of Grafana."""
    known = {each["name"] for each in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", re.sub(r'"\$__all"', "", TEXT)))
    assert used <= known
    sources = [target["datasource"] for panel in PANELS for target in panel.get("targets", [])]
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in sources)


async def test_every_metric_of_the_dashboard_is_scraped(start_server: StartServer) -> None:
    """Panels use metrics that a live server shows, or that the rules record from such metrics."""
    server = await start_server(cache_mb=1)
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    named = set().union(*map(metrics_in, expressions()))
    assert len(named) > 40
    assert named - await scraped_names(server) - recorded == set()


@pytest.mark.services
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """Prometheus's own tool parses what the panels ask."""
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool = require_program("promtool", package="prometheus")
    result = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
