"""The dashboard, as far as it can be checked without Grafana: its model, and its expressions."""

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from testbed.missing import require_program
from testbed.promql import metrics_in, scraped_names
from testbed.servers import StartServer

FOLDER = Path(__file__).parent.parent.parent / "deploy"
RULES = FOLDER / "prometheus" / "rules.yml"
COLUMNS = 24


class _Part(BaseModel):
    """A part of Grafana's dashboard model, schema version 39; unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Datasource(_Part):
    type: Literal["prometheus"]
    uid: Literal["${datasource}"]


class _Place(_Part):
    h: int = Field(ge=1)
    w: int = Field(ge=1, le=COLUMNS)
    x: int = Field(ge=0, lt=COLUMNS)
    y: int = Field(ge=0)

    def cells(self) -> set[tuple[int, int]]:
        """Return the cells of the grid that a panel covers."""
        return {(self.x + i, self.y + j) for i in range(self.w) for j in range(self.h)}


class _Target(_Part):
    refId: str = Field(pattern="[A-Z]")
    datasource: _Datasource
    expr: str = Field(min_length=1)
    legendFormat: str


class _Panel(_Part):
    id: int
    title: str = Field(min_length=1)
    type: Literal["row", "timeseries", "stat"]
    gridPos: _Place
    description: str = ""
    datasource: _Datasource | None = None
    targets: list[_Target] = []
    fieldConfig: dict[Literal["defaults", "overrides"], Any] = {}
    options: dict[str, Any] = {}
    collapsed: bool = False
    panels: list[Any] = Field(default=[], max_length=0)


class _Annotation(_Part):
    name: str
    datasource: _Datasource
    enable: bool
    iconColor: str
    expr: str
    titleFormat: str
    textFormat: str


class _Variable(_Part):
    name: str
    label: str
    type: Literal["datasource", "query"]
    query: Any
    refresh: int
    hide: int = 0
    datasource: _Datasource | None = None
    definition: str = ""
    includeAll: bool = False
    multi: bool = False
    allValue: str | None = None
    sort: int = 0
    current: dict[str, Any] = {}


class _Dashboard(_Part):
    uid: str = Field(max_length=40)
    title: str
    description: str
    tags: list[str]
    schemaVersion: Literal[39]
    version: int
    editable: bool
    graphTooltip: int
    refresh: str
    time: dict[Literal["from", "to"], str]
    timezone: str
    annotations: dict[Literal["list"], list[_Annotation]]
    templating: dict[Literal["list"], list[_Variable]]
    links: list[Any]
    panels: list[_Panel]

    def expressions(self) -> list[str]:
        """Return every PromQL expression, with Grafana's variables replaced."""
        panels = [target.expr for panel in self.panels for target in panel.targets]
        annotations = [each.expr for each in self.annotations["list"]]
        return [_filled(expr) for expr in panels + annotations]


def _filled(expression: str) -> str:
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


TEXT = (FOLDER / "grafana" / "voiceagent-tts.json").read_text()
DASHBOARD = _Dashboard.model_validate_json(TEXT)


def test_the_dashboard_fits_the_grid() -> None:
    """Ids are unique, panels do not overlap or leave the grid, and each has data."""
    ids = [panel.id for panel in DASHBOARD.panels]
    assert len(ids) == len(set(ids))
    for one, other in combinations(DASHBOARD.panels, 2):
        assert not one.gridPos.cells() & other.gridPos.cells(), (one.title, other.title)
    for panel in DASHBOARD.panels:
        assert panel.gridPos.x + panel.gridPos.w <= COLUMNS
        assert (panel.type == "row") == (not panel.targets)


def test_the_dashboard_uses_its_own_variables_only() -> None:
    """Every `$name` is a variable of the dashboard or of Grafana."""
    known = {variable.name for variable in DASHBOARD.templating["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", re.sub(r'"\$__all"', "", TEXT)))
    assert used <= known


async def test_every_metric_of_the_dashboard_is_scraped(start_server: StartServer) -> None:
    """Panels use metrics that a live server shows, or that the rules record from such metrics."""
    server = await start_server(cache_mb=1)
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    named = set().union(*map(metrics_in, DASHBOARD.expressions()))
    assert len(named) > 40
    assert named - await scraped_names(server) - recorded == set()


@pytest.mark.services
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """Prometheus's own tool parses what the panels ask."""
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(DASHBOARD.expressions())
    ]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool = require_program("promtool", package="prometheus")
    result = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_provisioning_finds_the_dashboard_and_prometheus() -> None:
    """Grafana's provisioning files name a folder and a data source of the right kind."""
    folder = FOLDER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"
    assert source["isDefault"] is True
    (provider,) = yaml.safe_load((folder / "dashboards" / "voiceagent-tts.yml").read_text())[
        "providers"
    ]
    assert provider["options"]["path"] == "/etc/grafana/dashboards"
    assert json.loads(TEXT)["uid"] == "voiceagent-tts"
