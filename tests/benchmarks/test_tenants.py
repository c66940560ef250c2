"""One tenant beside another that attacks the server is measured."""

import asyncio
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tenants import __main__ as tenants
from benchmarks.tenants.attacks import ATTACKS
from testbed.waiting import until
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import running

pytestmark = pytest.mark.realtime


# An attack leaves connections as they are.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "name", ["cuts", *(pytest.param(name, marks=pytest.mark.thorough) for name in ATTACKS)]
)
async def test_each_attack_is_one(name: str) -> None:
    """The server answers as it does to this attack, and not that it knows no such message."""
    attack, answers = ATTACKS[name], Counter[str]()
    async with running(Settings(port=0)) as server:
        attacking = asyncio.create_task(attack.begin(server.url, "a key", answers))
        await until(lambda: attack.is_proved_by(answers), "the attack is proved")
        attacking.cancel()
    # Its socket closes with the server; with an open one it would first read all that it asked for.
    await asyncio.gather(attacking, return_exceptions=True)
    assert not answers["error unknown_type"], answers


def result_of(*options: str) -> dict[str, Any]:
    """Run the benchmark; return the JSON of its last line."""
    argv = [sys.executable, "-m", "benchmarks.tenants", *options]
    run = subprocess.run(
        argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=False
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert run.returncode == bool(result["missed"])
    return result


GOOD = {
    "failed": 0,
    "p95_ms": 40.0,
    "proved": True,
    "alone_p95_ms": 20.0,
    "longest_stall_ms": 50.0,
    "rss_mb": {"kept_before": 100, "most": 400, "kept_after": 120},
}
GOOD_REPLICAS = {"failed": 0, "replica_down": 0, "proved": True}


def measured(
    monkeypatch: pytest.MonkeyPatch, figures: dict[str, Any], replicas: dict[str, Any]
) -> None:
    """Run the benchmark where two attacks give the figures of a test."""

    async def measure_all(*_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"cuts": GOOD, "uploads": figures}, {"cuts": GOOD_REPLICAS, "uploads": replicas}

    monkeypatch.setattr(tenants, "measure_all", measure_all)
    tenants.main(attacks="cuts;uploads")


def test_figures_within_their_limits_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that are at their limit."""
    measured(monkeypatch, {**GOOD, "p95_ms": 70.0}, GOOD_REPLICAS)
    out, err = capsys.readouterr()
    assert (json.loads(out)["missed"], err) == ([], "")


@pytest.mark.parametrize(
    ("figures", "replicas", "named"),
    [
        ({"failed": 1}, {}, "uploads: failed 1, limit 0"),
        ({"p95_ms": 70.1}, {}, "uploads: p95_ms 70.1, limit 70"),
        ({"p95_ms": math.nan}, {}, "uploads: p95_ms nan, limit 70"),
        ({"longest_stall_ms": 50.1}, {}, "uploads: longest_stall_ms 50.1, limit 50"),
        ({"rss_mb": {**GOOD["rss_mb"], "most": 401}}, {}, "uploads: rss_mb 401, limit 400"),
        (
            {"rss_mb": {**GOOD["rss_mb"], "kept_after": 121}},
            {},
            "uploads: rss_mb kept 121, limit 120",
        ),
        ({"proved": False}, {}, "uploads: no answer of the kind that proves the attack"),
        ({}, {"failed": 2}, "two replicas: uploads: failed 2, limit 0"),
        ({}, {"replica_down": 3}, "two replicas: uploads: replica_down 3, limit 0"),
    ],
)
def test_a_figure_beyond_its_limit_fails_the_benchmark(
    figures: dict[str, Any],
    replicas: dict[str, Any],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is named on standard error, and the last line has all figures all the same."""
    with pytest.raises(SystemExit) as ended:
        measured(monkeypatch, GOOD | figures, GOOD_REPLICAS | replicas)
    assert ended.value.code == named, "Python prints it, and the status is 1"
    result = json.loads(capsys.readouterr().out)
    assert result["missed"] == [named]
    assert result["attacks"].keys() == result["replicas"].keys() == {"cuts", "uploads"}


@pytest.mark.thorough
@pytest.mark.services
def test_an_attack_goes_through_the_proxy() -> None:
    """Two replicas behind HAProxy stay up, and the victim's turns are heard."""
    result = result_of("--attacks", "idle sockets", "--seconds", "2", "--settle-s", "0")
    alone, figures = result["attacks"]["idle sockets"], result["replicas"]["idle sockets"]
    assert alone["turns"] >= 8 and alone["failed"] == 0 and alone["proved"]
    assert 0 < alone["rss_mb"]["kept_before"] <= alone["rss_mb"]["most"]
    assert {"machine", "commit", "missed"} <= result.keys()
    assert figures["turns"] >= 8 and (figures["failed"], figures["replica_down"]) == (0, 0)
