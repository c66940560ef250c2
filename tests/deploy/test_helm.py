"""The Helm chart: its objects, and servers that run with what it gives them.

The templates use values and the release's name only, which a substitution of a few lines fills in;
what comes out is read as YAML, and checked against itself, the server, and Helm where it is there.
"""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.command_line import finished, start
from testbed.missing import require_program
from testbed.promql import metrics_in, scraped_names
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.checks.production import findings
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.settings.access import Quota
from voiceagent_tts.settings.network import DEFAULT_PORT

SERVICE_LINKS = {
    "VOICEAGENT_TTS_SERVICE_HOST": "10.0.0.1",
    "VOICEAGENT_TTS_SERVICE_PORT_HTTP": "80",
    "VOICEAGENT_TTS_PORT": "tcp://10.0.0.1:80",
    "VOICEAGENT_TTS_PORT_80_TCP_ADDR": "10.0.0.1",
}
CHART = Path(__file__).parent.parent.parent / "deploy" / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
RELEASE = {"Name": "speech", "Namespace": "voices"}
_EXPRESSION = re.compile(r"\{\{ \.(Values|Release)\.([\w.]+)(?: \| (toJson|quote))? \}\}")


def rendered(name: str, values: dict[str, Any]) -> str:
    """Return a template with its values filled in; no other expression may be left."""

    def value_of(match: re.Match[str]) -> str:
        value: Any = values if match[1] == "Values" else RELEASE
        for part in match[2].split("."):
            value = value[part]
        return json.dumps(str(value) if match[3] == "quote" else value) if match[3] else str(value)

    text = _EXPRESSION.sub(value_of, (CHART / "templates" / name).read_text())
    assert not re.search(r"\{\{[^}]*\.", text), "expected plain values only"
    return text


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all objects of the chart with these values."""
    return [
        each
        for name in ("server.yaml", "balancer.yaml", "scaling.yaml")
        for each in yaml.safe_load_all(rendered(name, values))
    ]


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return values with those of another file over them, as Helm merges them."""
    return values | {
        name: merged(values.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in more.items()
    }


OBJECTS = objects(VALUES)
EXAMPLES = sorted(path.name for path in CHART.glob("values-*.yaml"))
DOCUMENTED: list[dict[str, Any]] = [
    {},
    *(yaml.safe_load((CHART / name).read_text()) for name in EXAMPLES),
    {"settings": {"VOICEAGENT_TTS_REDIS": "redis://redis:6379/0"}},
    {"settings": {"VOICEAGENT_TTS_REDIS": "redis://redis:6379/0",
                  "VOICEAGENT_TTS_CACHE_REDIS_MB": "64"}},
]  # fmt: skip
"""Values that the chart and its page name, over the defaults."""


def one(kind: str, name: str, among: list[dict[str, Any]] = OBJECTS) -> dict[str, Any]:
    """Return the object of this kind and name."""
    (found,) = [o for o in among if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def environment(among: list[dict[str, Any]], keys: Path, data: Path) -> dict[str, str]:
    """Return the environment of the server's container, and of its image, on this machine."""
    spec = one("Deployment", "speech", among)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    image = dict(re.findall(r"(\w+)=(/data\S*)", (CHART.parents[1] / "Dockerfile").read_text()))
    given = {each["name"]: each["value"] for each in container["env"]}
    given |= one("ConfigMap", "speech-settings", among)["data"]
    assert given["VOICEAGENT_TTS_KEYS"] == "/etc/voiceagent-tts/keys.json"
    folders = {name: path.replace("/data", str(data)) for name, path in image.items()}
    return {"VOICEAGENT_TTS_HOST": "0.0.0.0"} | folders | given | {"VOICEAGENT_TTS_KEYS": str(keys)}


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


@pytest.mark.parametrize("more", DOCUMENTED)
def test_the_server_gets_settings_that_exist_and_time_to_drain(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variables are settings with valid values, and Kubernetes waits longer than the drain."""
    monkeypatch.delenv("VOICEAGENT_TTS_CACHE_MB", raising=False)  # of these tests
    found = objects(merged(VALUES, more))
    for name, value in environment(found, tmp_path / "keys.json", tmp_path).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    spec = one("Deployment", "speech", found)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert settings.needs_key
    assert settings.drain_s < spec["terminationGracePeriodSeconds"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": DEFAULT_PORT, "slots": settings.slots_port}
    ready = container["readinessProbe"]
    assert ready["httpGet"]["path"] == "/health/ready"
    # One slow answer takes no replica away from its callers; HAProxy asks three times too.
    assert (ready["timeoutSeconds"], ready["failureThreshold"]) == (5, 3)
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"


async def test_the_charts_limits_are_those_for_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor --production` finds nothing bad in them."""
    caller = make_key("caller", frozenset({Scope.SPEAK}), Quota()).key
    (tmp_path / "keys.json").write_text(KeyDocument(keys=(caller,)).dump())
    for name, value in environment(OBJECTS, tmp_path / "keys.json", tmp_path).items():
        monkeypatch.setenv(name, value)
    bad = [each async for each in findings(Settings()) if each.verdict == "bad"]
    assert bad == []


@pytest.mark.parametrize(
    "more",
    [{}, *(pytest.param(each, marks=pytest.mark.thorough) for each in DOCUMENTED[1:])],
    ids=["defaults", *EXAMPLES, "redis", "cache in redis"],
)
async def test_a_server_runs_with_the_charts_values(
    more: dict[str, Any], tmp_path: Path, free_port: int
) -> None:
    """It starts in a release called voiceagent-tts, and accepts the keys of the Secret."""
    keys = tmp_path / "keys.json"
    made = {scope: make_key(scope, frozenset({scope}), Quota()) for scope in Scope}
    keys.write_text(KeyDocument(keys=tuple(each.key for each in made.values())).dump())
    given = environment(objects(merged(VALUES, more)), keys, tmp_path) | SERVICE_LINKS
    given["VOICEAGENT_TTS_SLOTS_PORT"] = str(free_port)
    given.pop("VOICEAGENT_TTS_MODELS", None)  # their weights are not here
    process = await start(
        "serve", "--port", "0", "--engine", "espeak", folder=tmp_path, environment=given
    )
    assert process.stdout is not None
    ready = (await process.stdout.readline()).decode().split()
    assert ready[:1] == ["ready"], (await finished(process)).errors
    async with TTSClient(ready[1], made[Scope.SPEAK].secret) as tts:
        *_, done = [event async for event in tts.say("Hello.", language="en", max_lead_s=0)]
    assert isinstance(done, DoneMessage) and done.reason == "complete"
    process.send_signal(signal.SIGTERM)
    assert (await finished(process)).status == 0
    assert (tmp_path / "watermark.keys").is_file(), "on the volume that the replicas share"


def test_every_folder_of_the_settings_is_below_a_mount() -> None:
    """The root file system is read-only, and what is not on the volume is lost with the pod."""
    spec = one("Deployment", "speech")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folders = environment(OBJECTS, Path("/etc/voiceagent-tts/keys.json"), Path("/data"))
    paths = {name: value for name, value in folders.items() if value.startswith("/")}
    assert {"VOICEAGENT_TTS_JOBS_STORAGE", "VOICEAGENT_TTS_KEYS", "HF_HOME"} <= paths.keys()
    for name, path in paths.items():
        volumes = [mounts[str(each)] for each in Path(path).parents if str(each) in mounts]
        assert volumes[:1] == ["keys" if name.endswith("_KEYS") else "data"], (name, path)
    claims = {each["name"]: each.get("persistentVolumeClaim") for each in spec["volumes"]}
    claim = one("PersistentVolumeClaim", "speech-data")
    assert claims["data"] == {"claimName": claim["metadata"]["name"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"], "all pods share it"
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_clients_prometheus_and_administrators_have_keys_of_their_own() -> None:
    """The server mounts hashes only; the monitor sends the key that the Secret has for it."""
    spec = one("Deployment", "speech")["spec"]["template"]["spec"]
    (keys,) = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "keys"]
    assert keys["secretName"] == VALUES["secret"]
    assert [item["key"] for item in keys["items"]] == ["keys.json"]
    (endpoint,) = one("PodMonitor", "speech")["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {
        "name": VALUES["secret"], "key": "metrics-key",
    }  # fmt: skip


@pytest.mark.parametrize("more", EXAMPLES)
def test_helm_renders_the_same_objects(more: str) -> None:
    """What the substitution of these tests makes is what Helm makes."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("needs helm, which neither pip nor Debian has")
    argv = [helm, "template", RELEASE["Name"], CHART, "--namespace", RELEASE["Namespace"]]
    result = subprocess.run([*argv, "-f", CHART / more], capture_output=True, text=True, check=True)
    values = merged(VALUES, yaml.safe_load((CHART / more).read_text()))
    by_name = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(result.stdout)}
    assert by_name == {(o["kind"], o["metadata"]["name"]): o for o in objects(values)}


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
