import json

import pytest

from voiceagent_tts.cli import main


def test_the_command_ends_with_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences, then the figures."""
    argv = ["cost", "--hosted", "cloud=15", "--price", "3", "--chars-per-s", "500"]
    with pytest.raises(SystemExit) as exit_:
        main([*argv, "--chars-per-month", "2e8"])
    assert not exit_.value.code
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1])["machines"] == 1
    assert "own machines cheaper" in lines[-2]


@pytest.mark.parametrize(
    "arguments", [[], ["--chars-per-s", "1"], ["--chars-per-s", "-1", "--chars-per-month", "1"]]
)
def test_what_is_missing_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error, and status 1."""
    with pytest.raises(SystemExit) as exit_:
        main(["cost", "--hosted", "a=1", "--price", "3", *arguments])
    assert exit_.value.code == 1
    assert "expected" in capsys.readouterr().err
