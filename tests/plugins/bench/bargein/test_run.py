"""Whole runs: real sessions of both hosts, interrupted, and judged by their sound."""

import json
from pathlib import Path

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.conditions import Condition, Happening
from voiceagent_tts.plugins.bench.bargein.run import host_of, run_bargein
from voiceagent_tts.plugins.bench.bargein.services import targets_or_ours
from voiceagent_tts.plugins.bench.run import Outputs
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    "target", ["ws://127.0.0.1:1", "http://127.0.0.1:1", "pipecat:no.such.Class", "livekit:os.path"]
)
def test_targets_without_a_history_are_refused(target: str) -> None:
    """Only classes of hosts have one."""
    with pytest.raises(InvalidRequestError, match="expected"):
        host_of(TargetAddress.parse(target, Options()))


@pytest.mark.alone  # the judge hears what a busy machine breaks off
@pytest.mark.realtime
@pytest.mark.services
def test_both_hosts_and_a_connection_that_breaks_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our history holds what the judge has heard; the document, the page and the line agree."""
    outputs = Outputs(tmp_path, tmp_path / "a.json", tmp_path / "a.html")
    conditions = [
        Condition(happening, 2, 2, ("en", "de"), latest_s=1.5)
        for happening in (Happening.NOTHING, Happening.BREAK)
    ]
    document = run_bargein(targets_or_ours([], tmp_path), conditions, 1, outputs, "the command")
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(document["sections"]) == len(last["sections"]) == 4
    for section in document["sections"]:
        assert section["cuts"] == 2 and section["broken_off"] == []
        assert section["within_one_pct"] == 100.0 and section["dropped_turns"] == 0
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == json.loads(json.dumps(document))
    assert "ours, LiveKit" in (tmp_path / "a.html").read_text("utf-8")
