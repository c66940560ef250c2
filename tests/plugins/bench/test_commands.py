import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.server_process import ServerProcess
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.bench.commands import app


def run(*arguments: str) -> str:
    """Run `voiceagent-tts bench`; returns its standard output."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_three_doors_of_a_server_are_measured_in_one_run(
    served: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line is one JSON object without the single values; the files are written.

    The page loads nothing, and is no HTML of what it quotes.
    """
    host = served.url.removeprefix("http://")
    argv = [
        "latency", "--together", "2", "--seconds", "0.3", "--warm-up-s", "0", "--kinds", "short",
        "--target", f'ws=ws://{host}{{"server_pid": {served.process.pid}}}', "--target", f"http=http://{host}/v1",
        "--target", f"cartesia=cartesia+ws://{host}/tts/websocket",
        "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench", "<latency>"])
    result = json.loads(run(*argv).splitlines()[-1])
    assert {"machine", "commit", "command", "seed"} <= result.keys()
    assert [each["target"] for each in result["sections"]] == ["ws", "http", "cartesia"]
    for section in result["sections"]:
        assert section["failed"] == section["silent"] == 0 and section["utterances"] >= 2
        assert 0 < section["first_byte_p50_ms"] <= section["audible_p50_ms"]
        assert ("word_lag_p50_ms" in section) == (section["target"] != "http")
        assert ("server_cpu_percent" in section) == (section["target"] == "ws")
        assert "values" not in section and "measures" not in section
    of_process = result["sections"][0]
    assert 0 < of_process["front_cpu_percent"] < of_process["server_cpu_percent"]
    assert of_process["server_mb"] > of_process["server_mb_per_stream"] >= 0
    page = (tmp_path / "a.html").read_text()
    for part in ("http, 2 at once", f"commit: {result['commit']}", "&lt;latency&gt;"):
        assert part in page
    assert not any(part in page for part in ("<latency>", "<script", "src=", "href="))
    whole = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [each["target"] for each in whole["sections"]] == ["ws", "http", "cartesia"]
    assert len(whole["sections"][0]["values"]["audible_ms"]) == of_process["utterances"]


def test_a_target_that_speaks_nothing_fails_the_run(served: ServerProcess) -> None:
    """The others are measured and printed all the same."""
    host = served.url.removeprefix("http://")
    result = CliRunner().invoke(
        app,
        [
            "latency", "--seconds", "0.3", "--warm-up-s", "0", "--kinds", "short",
            "--voice", "nobody", "--target", f"ours=ws://{host}",
        ],
    )  # fmt: skip
    assert isinstance(result.exception, EngineError)
    assert result.exception.message.startswith("expected speech, got none from ours")
    (section,) = json.loads(result.stdout.splitlines()[-1])["sections"]
    assert section["failed"] == section["utterances"] > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--together", "x"), ("--together", "1.5"), ("--rate", "-1"), ("--together", ""),
        ("--kinds", "poem"), ("--target", "ftp://x"), ("--texts", "/dev/null"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidRequestError, match="expected"):
        CliRunner().invoke(app, ["latency", *arguments], catch_exceptions=False)
