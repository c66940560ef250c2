"""Sections that need more than torch, transformers and numpy: a server, pytest.

What a section needs is imported when it runs: a machine that lacks it can run the others.
"""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.ground import Ground
from testbed.linked_models import link_with_short_runs

_REPOSITORY = Path(__file__).parents[2]
_ROWS, _SECONDS, _FRAMES = 256, 15.0, 64
_WARM_UP_S = 1.0
"""Of a server under load; sentences of five seconds."""
_BARGE_INS, _SEED = 0.15, 1
_TESTS = (
    "tests/engine",
    "tests/model/test_fused.py",
    "tests/model/test_fused_sampler.py",
    "tests/model/test_fused_window.py",
    "tests/model/test_codec_fused.py",
)
"""Others need packages that a GPU machine has no use for."""


def checkpoints(ground: Ground) -> None:
    """Make the checkpoint that a server loads by its folder."""
    began_s = time.perf_counter()
    folder = ground.checkpoint("1.7b")
    taken_s = time.perf_counter() - began_s
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    ground.notes.keep_all(
        {
            "checkpoints_mb": round(sum(sizes) / 1e6, 1),
            "checkpoints_s": round(taken_s, 1),
            "disk_free_gb": round(shutil.disk_usage(ground.folder).free / 1e9),
        }
    )


def load(
    ground: Ground,
    size: str,
    rates: Sequence[float],
    together: Sequence[int],
    max_lead_s: float | None = None,
    aligner: str = "off",
) -> None:
    """Keep the figures of a server under load, each load as soon as it ends."""
    from voiceagent_tts.plugins.bench.callers import Section
    from voiceagent_tts.plugins.bench.loads import Load

    seconds, warm_up_s, frames = _SECONDS, _WARM_UP_S, _FRAMES
    if ground.is_tiny:
        rates, together = rates and (2.0,), (3,)
        seconds, warm_up_s, frames = 1.0, 0.1, 12
    loads = [Load(per_s=rate) for rate in rates] + [Load(together=count) for count in together]
    sections = [Section(each, seconds, warm_up_s) for each in loads]
    missing = [each for each in sections if not ground.notes.has("sections", each.name)]
    if missing:
        environment = {"VOICEAGENT_TTS_ALIGNER": aligner}
        ground.notes.keep(environment, "environment")
        asyncio.run(_load(ground, size, missing, frames, max_lead_s, environment))
    of_all = ground.notes.figures()["sections"].values()
    for name in ("utterances", "failed", "silent", "underruns"):
        ground.notes.keep(sum(one[name] for one in of_all), name)


async def _load(
    ground: Ground,
    size: str,
    sections: Sequence[Any],
    frames: int,
    max_lead_s: float | None,
    settings: Mapping[str, str],
) -> None:
    from benchmarks.gpu.server_counters import processor_seconds, read_counters, stages
    from voiceagent_tts.plugins.bench.callers import Callers
    from voiceagent_tts.plugins.bench.document import flat, section_document
    from voiceagent_tts.plugins.bench.loads import Style
    from voiceagent_tts.plugins.bench.own_server import own_server
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options
    from voiceagent_tts.plugins.bench.texts import choose_texts

    model = ground.folder / "load-model"
    shutil.rmtree(model, ignore_errors=True)
    link_with_short_runs(ground.checkpoint(size), model, frames)
    rows = 16 if ground.is_tiny else _ROWS  # a busy CPU has all arrivals open at once
    arguments = ["--model", str(model), "--rows", str(rows), "--device", ground.device_name]
    environment = {
        **settings,
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH")))
        ),
    }
    log = ground.folder / "server.log"
    style = Style(choose_texts(["en"], ["short", "menu"]), barge_ins=_BARGE_INS, seed=_SEED)
    lead = {} if max_lead_s is None else {"max_lead_s": max_lead_s}
    try:
        async with own_server(*arguments, log=log, environment=environment) as server:
            address = TargetAddress("own server", server.url, Options(arguments=lead))
            callers = Callers(address.open())
            try:
                for section in sections:
                    before = await read_counters(server.url)
                    used_s = processor_seconds(server.pid)
                    traffic = await callers.run(section, style)
                    after = await read_counters(server.url)
                    used_s = {
                        name: round(total_s - used_s.get(name, 0.0), 2)
                        for name, total_s in processor_seconds(server.pid).items()
                    }
                    document = section_document(address.name, section, traffic, _SEED)
                    figures = flat(document) | stages(before, after) | used_s
                    ground.notes.keep(figures, "sections", section.name)
            finally:
                await callers.aclose()
    finally:
        print(log.read_text(errors="replace"))


def tests(ground: Ground) -> None:
    """Keep the outcome of every test that needs a GPU; pytest's output goes to the log."""
    import pytest

    class Outcomes:
        """Keeps each outcome as soon as the test ends, and deselects tests that passed before."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or report.skipped or report.failed:
                ground.notes.keep(report.outcome, "outcomes", report.nodeid)
            if report.failed:  # at once: the section may be ended before pytest's own summary
                print(report.longreprtext, flush=True)

    known = ground.notes.figures().get("outcomes", {})
    deselected = [f"--deselect={name}" for name, outcome in known.items() if outcome == "passed"]
    os.chdir(_REPOSITORY)
    argv = ["-v", "-m", "gpu", "-p", "no:cacheprovider", *deselected, *_TESTS]
    status = int(pytest.main(argv, plugins=[Outcomes()]))
    outcomes = list(ground.notes.figures().get("outcomes", {}).values())
    for outcome in ("passed", "failed", "skipped"):
        ground.notes.keep(outcomes.count(outcome), outcome)
    ground.notes.keep(status, "gpu_tests_status")
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(json.dumps({"gpu_tests_status": status}), file=sys.stderr)
