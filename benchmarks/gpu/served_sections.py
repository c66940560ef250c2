"""Sections that need more than torch, transformers and numpy: a server, pytest.

What a section needs is imported when it runs: a machine that lacks it can run the others.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.ground import Ground
from testbed.linked_models import link_with_short_runs
from testbed.server_process import read_metrics

_REPOSITORY = Path(__file__).parents[2]
_SIZE = "1.7b"
_ROWS, _SECONDS, _FRAMES = 256, 15.0, 64
_WARM_UP_S = 1.0
"""Of a server under load; sentences of five seconds."""
_BARGE_INS, _SEED = 0.15, 1
_STAGES = ("prefill", "predictor", "talker", "codec", "host")
_FREED = "tts_engine_abort_seconds"
_TESTS = (
    "tests/engine",
    "tests/model/test_fused.py",
    "tests/model/test_fused_row.py",
    "tests/model/test_fused_sampler.py",
    "tests/model/test_fused_window.py",
    "tests/model/test_codec_fused.py",
)
"""Others need packages that a GPU machine has no use for."""


def checkpoints(ground: Ground) -> None:
    """Make the checkpoint that a server loads by its folder."""
    began_s = time.perf_counter()
    folder = ground.checkpoint(_SIZE)
    taken_s = time.perf_counter() - began_s
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    ground.keep_all(
        {
            "checkpoints_mb": round(sum(sizes) / 1e6, 1),
            "checkpoints_s": round(taken_s, 1),
            "disk_free_gb": round(shutil.disk_usage(ground.folder).free / 1e9),
        }
    )


def load(
    ground: Ground,
    rates: Sequence[float],
    together: Sequence[int],
    max_lead_s: float | None = None,
    aligner: str = "off",
) -> None:
    """Keep the figures of a server under load, each load as soon as it ends."""
    from voiceagent_tts.plugins.bench.callers import Section
    from voiceagent_tts.plugins.bench.loads import Load

    seconds, warm_up_s = _SECONDS, _WARM_UP_S
    if ground.is_tiny:
        rates, together = rates and (2.0,), (3,)
        seconds, warm_up_s = 1.0, 0.1
    loads = [Load(per_s=rate) for rate in rates] + [Load(together=count) for count in together]
    sections = [Section(each, seconds, warm_up_s) for each in loads]
    missing = [each for each in sections if each.name not in ground.figures("sections")]
    if missing:
        ground.keep(aligner, "aligner")
        asyncio.run(_load(ground, missing, max_lead_s, aligner))
    of_all = ground.figures("sections").values()
    for name in ("utterances", "failed", "silent", "underruns"):
        ground.keep(sum(one[name] for one in of_all), name)


async def _load(
    ground: Ground, sections: Sequence[Any], max_lead_s: float | None, aligner: str
) -> None:
    from rich.console import Console

    from voiceagent_tts.client import http_address
    from voiceagent_tts.plugins.bench.document import flat
    from voiceagent_tts.plugins.bench.loads import Style
    from voiceagent_tts.plugins.bench.own_server import own_server
    from voiceagent_tts.plugins.bench.run import measure
    from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
    from voiceagent_tts.plugins.bench.targets.target import Options
    from voiceagent_tts.plugins.bench.texts import choose_texts

    model = ground.folder / "load-model"
    shutil.rmtree(model, ignore_errors=True)
    link_with_short_runs(ground.checkpoint(_SIZE), model, 12 if ground.is_tiny else _FRAMES)
    rows = 16 if ground.is_tiny else _ROWS  # a busy CPU has all arrivals open at once
    arguments = ["--model", str(model), "--rows", str(rows), "--device", ground.device_name]
    paths = filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH")))
    environment = {"VOICEAGENT_TTS_ALIGNER": aligner, "PYTHONPATH": os.pathsep.join(paths)}
    log = ground.folder / "server.log"
    style = Style(choose_texts(["en"], ["short", "menu"]), barge_ins=_BARGE_INS, seed=_SEED)
    lead = {} if max_lead_s is None else {"max_lead_s": max_lead_s}
    try:
        async with own_server(*arguments, log=log, environment=environment) as server:
            options = Options(arguments=lead, server_pid=server.pid)
            address = TargetAddress("own server", server.url, options)
            url = http_address(server.url, "")
            for section in sections:
                before = await asyncio.to_thread(read_metrics, url)
                (document,) = await measure([address], [section], style, Console(stderr=True))
                after = await asyncio.to_thread(read_metrics, url)
                figures = flat(document) | _stages(before, after)
                ground.keep(figures, "sections", section.name)
    finally:
        print(log.read_text(errors="replace"))


def _stages(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Mean milliseconds of a step by stage, its mean number of rows, and what barge-ins freed."""
    added = {name: value - before.get(name, 0.0) for name, value in after.items()}
    steps = added.get("tts_worker_steps_total", 0.0)
    if not steps:
        return {}
    freed = added.get(f"{_FREED}_count", 0.0)
    return {
        **{
            f"{stage}_ms": round(1000 * added[f"tts_worker_{stage}_seconds_total"] / steps, 2)
            for stage in _STAGES
        },
        "steps": int(steps),
        "rows_per_step": round(added["tts_worker_frames_total"] / steps, 1),
        "freed_rows": int(freed),
        "freed_mean_ms": round(1000 * added[f"{_FREED}_sum"] / freed, 2) if freed else 0.0,
    }


def tests(ground: Ground) -> None:
    """Keep the outcome of every test that needs a GPU; pytest's output goes to the log."""
    import pytest

    class Outcomes:
        """Keeps each outcome as soon as the test ends."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or report.skipped or report.failed:
                ground.keep(report.outcome, "outcomes", report.nodeid)
            if report.failed:  # at once: the section may be ended before pytest's own summary
                print(report.longreprtext, flush=True)

    known = ground.figures("outcomes")
    deselected = [f"--deselect={name}" for name, outcome in known.items() if outcome == "passed"]
    os.chdir(_REPOSITORY)
    argv = ["-v", "-m", "gpu", "-p", "no:cacheprovider", *deselected, *_TESTS]
    status = int(pytest.main(argv, plugins=[Outcomes()]))
    outcomes = list(ground.figures("outcomes").values())
    for outcome in ("passed", "failed", "skipped"):
        ground.keep(outcomes.count(outcome), outcome)
    ground.keep(status, "gpu_tests_status")
