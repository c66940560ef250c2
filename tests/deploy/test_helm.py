"""The Helm chart, as far as it can be checked without Helm and Kubernetes.

The templates use values and the release's name only, which a substitution of a few lines fills in;
what comes out is read as YAML, and checked against itself and against the server.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.missing import require_program
from testbed.promql import metrics_in, scraped_names
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.settings.network import DEFAULT_PORT

CHART = Path(__file__).parent.parent.parent / "deploy" / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
RELEASE = {"Name": "speech", "Namespace": "voices"}
_EXPRESSION = re.compile(r"\{\{ \.(Values|Release)\.([\w.]+)(?: \| (toJson|quote))? \}\}")


def rendered(name: str) -> str:
    """Return a template with its values filled in; no other expression may be left."""
    text = _EXPRESSION.sub(_value, (CHART / "templates" / name).read_text())
    assert not re.search(r"\{\{[^}]*\.", text), "expected plain values only"
    return text


def _value(match: re.Match[str]) -> str:
    value: Any = VALUES if match[1] == "Values" else RELEASE
    for part in match[2].split("."):
        value = value[part]
    return json.dumps(str(value) if match[3] == "quote" else value) if match[3] else str(value)


OBJECTS: list[dict[str, Any]] = [
    each
    for name in ("server.yaml", "balancer.yaml", "scaling.yaml")
    for each in yaml.safe_load_all(rendered(name))
]


def one(kind: str, name: str) -> dict[str, Any]:
    """Return the object of this kind and name."""
    (found,) = [o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def test_the_objects_are_of_known_kinds_with_unique_names() -> None:
    """Each has the API version of its kind, and a name of the release."""
    versions = {
        "Deployment": "apps/v1",
        "ConfigMap": "v1",
        "Service": "v1",
        "PodDisruptionBudget": "policy/v1",
        "ScaledObject": "keda.sh/v1alpha1",
        "PodMonitor": "monitoring.coreos.com/v1",
    }
    names = [(each["kind"], each["metadata"]["name"]) for each in OBJECTS]
    assert len(names) == len(set(names))
    for each in OBJECTS:
        assert each["apiVersion"] == versions[each["kind"]]
        assert each["metadata"]["name"].startswith(RELEASE["Name"])
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["type"]) == ("v2", "application")


@pytest.mark.parametrize("name", ["speech", "speech-balancer"])
def test_selectors_find_the_pods(name: str) -> None:
    """Deployments, services, the budget and the monitor select labels that pods have."""
    pod = one("Deployment", name)["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert one("Deployment", name)["spec"]["selector"]["matchLabels"] == labels
    service = one("Service", {"speech": "speech-replicas", "speech-balancer": "speech"}[name])
    assert service["spec"]["selector"] == labels
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    if name == "speech":
        for kind in ("PodDisruptionBudget", "PodMonitor"):
            assert one(kind, "speech")["spec"]["selector"]["matchLabels"] == labels


def test_every_pod_runs_without_rights() -> None:
    """No root, no new privileges, no capabilities, a read-only root file system."""
    for name in ("speech", "speech-balancer"):
        spec = one("Deployment", name)["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_server_gets_settings_that_exist_and_time_to_drain() -> None:
    """Its variables are settings with valid values, and Kubernetes waits longer than the drain."""
    spec = one("Deployment", "speech")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = {each["name"]: each.get("value", "key") for each in container["env"]}
    given |= one("ConfigMap", "speech-settings")["data"]
    names = {f"VOICEAGENT_TTS_{name.upper()}": name for name in Settings.model_fields}
    settings = Settings(**{names[name]: value for name, value in given.items() if value})
    assert settings.needs_key
    assert settings.drain_s < spec["terminationGracePeriodSeconds"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": DEFAULT_PORT, "slots": settings.slots_port}
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"


async def test_scaling_follows_a_metric_that_a_server_has(server: RunningServer) -> None:
    """The query's metric is in a live scrape; scaling down is slow, one pod after the other."""
    spec = one("ScaledObject", "speech")["spec"]
    (trigger,) = spec["triggers"]
    assert metrics_in(trigger["metadata"]["query"]) <= await scraped_names(server)
    assert metrics_in(trigger["metadata"]["query"]) == {"tts_slots_used"}
    assert spec["scaleTargetRef"]["name"] == one("Deployment", "speech")["metadata"]["name"]
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] >= 600
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    assert VALUES["balancer"]["slots"] >= spec["maxReplicaCount"] >= spec["minReplicaCount"]
    assert "replicas" not in one("Deployment", "speech")["spec"], "KEDA sets it"


@pytest.mark.services
def test_haproxy_reads_the_balancers_configuration(tmp_path: Path) -> None:
    """A real HAProxy accepts it, and it names the headless service."""
    config = one("ConfigMap", "speech-haproxy")["data"]["haproxy.cfg"]
    assert f"{one('Service', 'speech-replicas')['metadata']['name']}:{DEFAULT_PORT}" in config
    path = tmp_path / "haproxy.cfg"
    path.write_text(config)
    result = subprocess.run(
        [require_program("haproxy"), "-c", "-f", path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
