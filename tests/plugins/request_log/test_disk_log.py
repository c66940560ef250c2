"""Logs on disk: written in the background, in whole lines, whatever happens to the disk."""

from pathlib import Path

from structlog.testing import capture_logs

from voiceagent_tts.plugins.request_log.disk_log import DiskLog, LineFile


def test_a_disk_that_is_full_for_a_while_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    """The log says once that it cannot write, and once that it can; each lost line is counted."""
    path, failures = tmp_path / "requests.jsonl", list[str]()
    path.symlink_to("/dev/full")
    with capture_logs() as logs:
        disk, lines = DiskLog("request_log", failures.append), LineFile(path)
        for _ in range(3):
            disk.submit(lambda: lines.append("lost"))
        disk.submit(path.unlink)  # and opened anew: as log rotation does
        for number in range(2):
            disk.submit(lambda number=number: lines.append(str(number)))
        disk.close()
    assert failures == ["request_log"] * 3
    assert path.read_text() == "0\n1\n"
    assert [line["event"] for line in logs] == ["log_not_written", "log_written_again"]


def test_a_log_that_is_closed_takes_no_more(tmp_path: Path) -> None:
    """A context may end after its server; then its line is dropped without an error."""
    lines = LineFile(tmp_path / "requests.jsonl")
    disk = DiskLog("request_log", lambda name: None)
    disk.close()
    disk.submit(lambda: lines.append("late"))
    assert list(tmp_path.iterdir()) == []
