import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service.ttfa import (
    Section,
    Turn,
    http_to,
    measure,
    sections_of,
    summarize,
    websocket_to,
)
from testbed.server_process import ServerProcess

TEXTS = ["Good news today, your order left our warehouse this morning.", "Is that right?"]


def test_the_program_ends_with_one_json_object(tmp_path: Path):
    """As a program, the benchmark starts a server, plots, and ends with its figures."""
    argv = ["--turns", "2", "--contexts", "2", "--png", str(tmp_path / "ttfa.png")]
    argv += ["--json", str(tmp_path / "ttfa.json")]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.ttfa", *argv],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert result == json.loads((tmp_path / "ttfa.json").read_text())
    assert (tmp_path / "ttfa.png").read_bytes().startswith(b"\x89PNG")
    assert result["turns"] == 8
    assert {"machine", "commit", "command"} <= result.keys()
    for prefix in ("", "new_socket_"):
        for suffix in ("", "_2"):
            audible_ms = result[f"{prefix}audible_p95_ms{suffix}"]
            assert 0 < result[f"{prefix}first_audio_p95_ms{suffix}"] <= audible_ms
            assert 0 < result[f"{prefix}audible_overhead_p95_ms{suffix}"] <= audible_ms


@pytest.mark.parametrize("section", sections_of(2), ids=lambda section: section.label)
async def test_a_section_takes_one_turn_for_each_text(served: ServerProcess, section: Section):
    """Warm or new, alone or together: each text is spoken, its sound after its first message."""
    connect = websocket_to(served.websocket_url, None, None)
    turns = await measure(section, connect, TEXTS)
    assert len(turns) == len(TEXTS)
    for turn in turns:
        assert 0 < turn.first_audio_s <= turn.audible_message_s <= turn.audible_s
        assert turn.audible_s >= turn.first_audio_s + turn.leading_silence_s - 1e-9


async def test_openai_compatible_servers_are_measured_too(served: ServerProcess):
    """`--http` measures our OpenAI endpoint like any other, with or without `/v1`."""
    for url in (served.url, f"{served.url}/v1"):
        turns = await measure(Section(1, True), http_to(url, None, "tts-1", None), TEXTS)
        assert len(turns) == len(TEXTS)


def test_figures_are_named_by_their_section():
    """New sockets have a prefix, several contexts a suffix; overhead excludes the silence."""
    turn = Turn(
        first_audio_s=0.010,
        audible_message_s=0.012,
        audible_s=0.050,
        leading_silence_s=0.040,
        underruns=1,
        underrun_s=0.2,
    )
    figures = summarize(Section(20, False), [turn, turn])
    assert figures["new_socket_audible_p95_ms_20"] == 50
    assert figures["new_socket_audible_overhead_p95_ms_20"] == 10
    assert figures["new_socket_underruns_20"] == 2
    assert "audible_p95_ms" in summarize(Section(1, True), [turn])
