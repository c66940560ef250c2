"""One tenant beside another that attacks the server is measured."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tenants.attacks import ATTACKS
from testbed.waiting import until
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import running


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
        argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_a_victim_is_measured_beside_an_attacker() -> None:
    """The victim's turns are heard, and the JSON has the server's stall and memory."""
    options = ["--attacks", "short sentences", "--seconds", "1", "--settle-s", "0"]
    result = result_of(*options, "--no-replicas")
    figures = result["attacks"]["short sentences"]
    assert figures["turns"] >= 8 and figures["failed"] == 0
    assert figures["p95_ms"] > 0 and figures["longest_stall_ms"] > 0
    assert figures["alone_p95_ms"] > 0 and figures["rss_mb"]["kept_after"] > 0
    assert figures["rss_mb"]["most"] >= figures["rss_mb"]["kept_before"] > 0
    assert figures["proved"]
    assert {"machine", "commit", "missed"} <= result.keys()


@pytest.mark.thorough
@pytest.mark.services
def test_an_attack_goes_through_the_proxy() -> None:
    """Two replicas behind HAProxy stay up, and the victim's turns are heard."""
    figures = result_of("--attacks", "idle sockets", "--seconds", "2", "--settle-s", "0")
    figures = figures["replicas"]["idle sockets"]
    assert figures["turns"] >= 8 and (figures["failed"], figures["replica_down"]) == (0, 0)
