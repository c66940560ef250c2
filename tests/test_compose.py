"""The container image and the Compose files, as far as they can be checked without Docker."""

import asyncio
import json
import re
import runpy
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.servers import StartServer
from voiceagent_tts.config import Settings
from voiceagent_tts.settings.network import DEFAULT_PORT

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT_NAMES = {"VOICEAGENT_TTS_API_KEY", "VOICEAGENT_TTS_URL"}
LIVEKIT_NAMES = {"LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"}
LOCAL_MODEL_NAMES = {f"LOCAL_{kind}_{what}" for kind in ("STT", "LLM") for what in ("URL", "MODEL")}
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
AGENTS = [name for name, service in BUILT.items() if service["build"]["target"] == "agent"]
SETTING_NAMES = {f"VOICEAGENT_TTS_{name.upper()}" for name in Settings.model_fields}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the Dockerfile: its base, and its (instruction, arguments) in order."""

    base: str
    steps: list[tuple[str, str]]

    def arguments(self, instruction: str) -> list[str]:
        """Return the arguments of every instruction of this kind."""
        return [arguments for name, arguments in self.steps if name == instruction]


def read_stages() -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    stages: dict[str, Stage] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("FROM "):
            _, base, _, name = line.split()
            stages[name] = Stage(base, [])
        elif line.strip():
            instruction, _, arguments = line.partition(" ")
            stages[name].steps.append((instruction, arguments.strip()))
    return stages


STAGES = read_stages()


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.compose-spec", "docker-compose.yml"),
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.github-workflows", ".github/workflows/docs.yml"),
        ("vendor.github-workflows", ".github/workflows/release.yml"),
        ("vendor.github-workflows", ".github/workflows/weekly.yml"),
    ],
)
def test_a_file_for_others_follows_their_schema(schema: str, path: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_no_more_than_it_must(name: str) -> None:
    """It runs without root, without capabilities, and on a read-only file system."""
    service = SERVICES[name]
    assert not service["user"].startswith("0")
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_told_only_what_a_program_reads(name: str) -> None:
    """Its environment contains only settings of the server or an agent, and no real key."""
    environment = SERVICES[name].get("environment", {})
    known = SETTING_NAMES | CLIENT_NAMES | LIVEKIT_NAMES | LOCAL_MODEL_NAMES
    assert environment.keys() <= known
    key = "${VOICEAGENT_TTS_API_KEY:?the server needs a key}"
    assert environment.get("VOICEAGENT_TTS_API_KEY", key) == key
    server_keys = f"{key},${{METRICS_KEY:-}}"
    assert environment.get("VOICEAGENT_TTS_API_KEYS", server_keys) == server_keys


@pytest.mark.parametrize("name", [name for name in BUILT if name not in AGENTS])
def test_a_server_starts_with_what_compose_gives_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment makes settings, with and without what the shell may add."""
    monkeypatch.delenv("VOICEAGENT_TTS_CACHE_MB", raising=False)  # of these tests
    given = {"VOICEAGENT_TTS_API_KEY": "k" * 64}
    for more in ({}, {"METRICS_KEY": "m" * 64, "VOICEAGENT_TTS_KEY_LIMITS": "contexts=9"}):
        for variable, value in SERVICES[name]["environment"].items():
            monkeypatch.setenv(variable, filled(value, given | more))
        settings = Settings(host="0.0.0.0")
        assert len(settings.api_keys) == 1 + bool(more)


def filled(value: str, shell: dict[str, str]) -> str:
    """Return a value of the Compose file with the variables of a shell."""
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda match: shell.get(match[1], match[2]), value)


STRANGERS_LIMITS = ("KEY_LIMITS", "IP_LIMITS", "VOICES_PER_KEY")
"""Settings without which one key, or one address without keys, can take all there is."""


def test_the_replicas_and_their_balancer_find_each_other() -> None:
    """HAProxy's defaults are the names of the replicas, their port, and their agent's port."""
    text = (ROOT / "deploy" / "haproxy.cfg").read_text()
    defaults = dict(re.findall(r"presetenv (\w+)\s+(\S+)", text))
    for number in (1, 2):
        name = f"tts-{number}"
        environment = SERVICES[name]["environment"]
        assert defaults[f"TTS_{number}"] == f"{name}:{DEFAULT_PORT}"
        assert defaults[f"TTS_{number}_AGENT"] == environment["VOICEAGENT_TTS_SLOTS_PORT"]
        assert environment["VOICEAGENT_TTS_REDIS"].startswith("redis://redis:")
        assert {f"VOICEAGENT_TTS_{limit}" for limit in STRANGERS_LIMITS} <= environment.keys()
        trusted = Settings(trusted_proxies=environment["VOICEAGENT_TTS_TRUSTED_PROXIES"])
        of_balancer = SERVICES["haproxy"]["networks"]["replicas"]["ipv4_address"]
        assert (
            trusted.trusted_proxies == (of_balancer,) and "replicas" in SERVICES[name]["networks"]
        )
    (port,) = SERVICES["haproxy"]["ports"]
    assert port.endswith(defaults["TTS_BIND"])


def test_prometheus_scrapes_the_servers_with_a_key() -> None:
    """Its configuration names every server, its port, and the secret that Compose mounts."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == {name for name in BUILT if name not in AGENTS}
    assert found["port"] == DEFAULT_PORT
    (secret,) = SERVICES["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    # A file is mounted; a secret of the environment would be written into a read-only container.
    assert COMPOSE["secrets"][secret] == {"file": "./replicas/metrics.key"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_file_that_a_service_mounts_exists(name: str) -> None:
    """Folders and files of the repository are mounted read-only, and volumes are declared."""
    for volume in SERVICES[name].get("volumes", []):
        source, _, target = volume.partition(":")
        if source.startswith("./"):
            assert (ROOT / source).exists()
            assert target.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_what_a_container_keeps_is_in_a_volume() -> None:
    """What a server is given and downloads, and what the demo writes as the user of the image."""
    kept = re.findall(r"(?:VOICES_FOLDER|HF_HOME|TRITON_CACHE_DIR)=(\S+)", DOCKERFILE)
    assert len(kept) == 3
    demo = SERVICES["agent"]["command"]
    for name, paths in (("tts-gpu", kept), ("agent", [demo[demo.index("--out") + 1]])):
        (volume,) = SERVICES[name]["volumes"]
        _, folder = volume.split(":")
        assert all(path.startswith(f"{folder}/") for path in paths)
        assert f"--owner 10001 --group 10001 {folder}" in DOCKERFILE


def test_a_drain_fits_into_the_grace_period() -> None:
    """Docker waits longer for the server than the server waits for its contexts."""
    for name in ("tts", "tts-gpu", "tts-1", "tts-2"):
        grace_s = float(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace_s > Settings.model_fields["drain_s"].default


def test_every_file_that_is_copied_into_the_image_exists() -> None:
    """Sources of COPY exist here and pass `.dockerignore`, or are paths of a stage."""
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for stage in STAGES.values():
        for arguments in stage.arguments("COPY"):
            *sources, _ = arguments.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in STAGES
                continue
            assert [source for source in sources if not (ROOT / source).exists()] == []
            assert set(sources) <= allowed


def test_the_image_names_extras_and_settings_that_exist() -> None:
    """Extras that the Dockerfile installs are declared, and variables that it sets are read."""
    text = DOCKERFILE
    named = re.findall(r"(?:\.|voiceagent-tts)\[([\w,]+)\]", text)
    named += re.findall(r"EXTRAS=([\w,]+)", text)
    named += [arguments["EXTRAS"] for arguments in map(build_arguments, BUILT) if arguments]
    named += re.findall(r"EXTRAS=([\w,]+)", (ROOT / ".github/workflows/release.yml").read_text())
    assert len(named) > 5
    for extras in named:
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
        if "server" in extras:  # settings of the charts and of Compose can ask for all of these
            assert extras.startswith("server,espeak,japanese,hibari,kokoro")
    assert set(re.findall(r"VOICEAGENT_TTS_\w+", text)) <= SETTING_NAMES


def build_arguments(name: str) -> dict[str, str]:
    return BUILT[name]["build"].get("args", {})


@pytest.mark.parametrize("name", BUILT)
def test_an_image_is_built_with_arguments_that_its_stages_take(name: str) -> None:
    stages = [stage for stage in STAGES.values() if stage.arguments("ARG")]
    taken = {line.partition("=")[0] for stage in stages for line in stage.arguments("ARG")}
    assert build_arguments(name).keys() <= taken
    same = [BUILT[other] for other in BUILT if BUILT[other]["image"] == BUILT[name]["image"]]
    assert all(service["build"] == BUILT[name]["build"] for service in same)


def test_the_default_image_is_the_server_in_exec_form() -> None:
    """The last stage runs the server without a shell, so that SIGTERM reaches it."""
    (command,) = list(STAGES.values())[-1].arguments("CMD")
    program, *arguments = json.loads(command)
    assert PROJECT["scripts"][program] == "voiceagent_tts.cli:main"
    assert arguments == ["serve"]
    assert [str(DEFAULT_PORT)] == STAGES["server"].arguments("EXPOSE")


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_started_with_options_that_it_has(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent's own help knows every option of the Compose file's command line."""
    python, m, module, *arguments = SERVICES[name]["command"]
    assert [python, m] == json.loads(STAGES["agent"].arguments("CMD")[0])[:2]
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.delitem(sys.modules, module, raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert not ended.value.code
    shown = capsys.readouterr().out
    commands_and_options = [argument for argument in arguments if re.match(r"--|[a-z]+$", argument)]
    assert [known for known in commands_and_options if known not in shown] == []


async def test_the_health_checks_notice_a_drain(start_server: StartServer) -> None:
    """Docker's health check succeeds on a server that speaks, and fails on one that drains."""
    (healthcheck,) = STAGES["server"].arguments("HEALTHCHECK")
    in_image = json.loads(healthcheck.partition(" CMD ")[2])
    assert SERVICES["tts"]["healthcheck"]["test"] == ["CMD", *in_image]
    server = await start_server()
    code = in_image[2].replace(f"127.0.0.1:{DEFAULT_PORT}", server.url.removeprefix("http://"))
    assert await exit_status(code) == 0
    await server.state.drain(1)
    assert await exit_status(code) == 1


async def exit_status(code: str) -> int | None:
    """Run Python code in a separate process without output; return its status."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
