"""The release workflow, as far as it goes without GitHub: its rules, and its steps' commands."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.environments import install_with_uv
from voiceagent_tts import __version__

ROOT = Path(__file__).parent.parent
# YAML reads the key `on` as a truth value.
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps_of(job: str) -> list[dict[str, Any]]:
    return JOBS[job]["steps"]


def commands_of(job: str) -> dict[str, str]:
    return {step["name"]: step["run"] for step in steps_of(job) if "run" in step}


def run_step(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step's command as GitHub does, in `folder`."""
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_only_a_tag_publishes() -> None:
    """Started by hand, it builds and tries everything, and neither uploads nor pushes."""
    assert WORKFLOW[True]["push"] == {"tags": ["v*"]}
    assert "workflow_dispatch" in WORKFLOW[True]
    assert JOBS["publish"]["if"] == "github.ref_type == 'tag'"
    (image,) = [step for step in steps_of("images") if "build-push" in step.get("uses", "")]
    assert image["with"]["push"] == "${{ github.ref_type == 'tag' }}"


def test_the_package_is_published_without_a_stored_secret_after_it_was_tried() -> None:
    """The index trusts the workflow; only the job that uploads may ask for an identity."""
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert JOBS["publish"]["needs"] == ["build", "try"]
    assert [name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})] == [
        "publish"
    ]
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()


PROJECT_PATH = PROJECT["urls"]["Homepage"].removeprefix("https://github.com/")
CHART = ROOT / "deploy" / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("name", sorted(path.name for path in CHART.glob("values*.yaml")))
def test_the_image_of_a_chart_is_published_with_its_engine(name: str) -> None:
    """Its tag is one of a release, whose extras have the engine, and whose packages a compiler."""
    given = yaml.safe_load((CHART / name).read_text())
    repository, _, tag = given.get("image", VALUES["image"]).partition(":")
    engine = given.get("settings", {}).get("VOICEAGENT_TTS_ENGINE", "espeak")
    (names,) = [step["with"] for step in steps_of("images") if step.get("id") == "names"]
    flavor = dict(line.split("=", 1) for line in names["flavor"].splitlines())
    assert flavor == {"latest": "auto", "suffix": "${{ matrix.suffix }},onlatest=true"}
    assert repository == names["images"].replace("${{ github.repository }}", PROJECT_PATH)
    published = {
        f"latest{image['suffix']}": dict(
            line.split("=", 1) for line in image["arguments"].splitlines()
        )
        for image in JOBS["images"]["strategy"]["matrix"]["include"]
    }
    assert engine in published[tag]["EXTRAS"].split(",")
    # Triton compiles what loads its kernels.
    assert engine != "qwen3" or "gcc" in published[tag]["PACKAGES"].split()


@pytest.mark.parametrize(
    ("tag", "status"), [(f"v{__version__}", 0), ("v99.0.0", 1), (__version__, 1)]
)
def test_a_tag_that_is_not_the_version_stops_the_release(
    tag: str, status: int, tmp_path: Path
) -> None:
    """The workflow's own step compares them."""
    command = commands_of("build")["The tag is the version of the package"]
    (tmp_path / "python").symlink_to(sys.executable)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert run_step(command, ROOT, PATH=path, GITHUB_REF_NAME=tag).returncode == status


@pytest.mark.install
@pytest.mark.timeout(300)
def test_the_steps_build_and_try_the_package(tmp_path: Path) -> None:
    """The commands of the jobs `build` and `try`, on a copy of what git has; then it speaks."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("voiceagent_tts", "livekit"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    environment = install_with_uv(tmp_path / "runner", "pip")
    path = f"{environment.folder / 'bin'}:{os.environ['PATH']}"
    done = run_step(
        commands_of("build")["Build the wheel and the source distribution"], source, PATH=path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2
    first = JOBS["try"]["strategy"]["matrix"]["include"][0]
    for name, command in commands_of("try").items():
        if name == "Import the adapters":  # for the rows with other extras
            continue
        command = command.replace("${{ matrix.command }}", first["command"])
        done = run_step(command, source, PATH=path, EXTRAS=first["extras"])
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    assert (source / "hello.wav").stat().st_size > 24_000
