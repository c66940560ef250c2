"""The audit log: its chain, its verifier, and what happens where the disk is full."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from voiceagent_tts.access.audit import AuditBrokenError, AuditLog, Chain, verify
from voiceagent_tts.errors import InvalidRequestError

Damage = Callable[[list[str]], list[str]]

DAMAGES: dict[str, Damage] = {
    "a changed field": lambda lines: [lines[0], lines[1].replace("Anna", "Hans"), *lines[2:]],
    "a removed line": lambda lines: [lines[0], *lines[2:]],
    "a removed first line": lambda lines: lines[1:],
    "a line twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "lines in another order": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "no JSON": lambda lines: [lines[0], "{", *lines[2:]],
    "no object": lambda lines: [lines[0], "[]", *lines[2:]],
    "an empty line": lambda lines: [lines[0], "", *lines[1:]],
    "a line of another log": lambda lines: [lines[0], Chain(1).next_line({})[0], *lines[2:]],
}


def write(path: Path, *consents: str) -> list[str]:
    """Append one record for each consent; returns the names of logs that failed."""
    failures: list[str] = []
    log = AuditLog(path, failures.append)
    for consent in consents:
        log.record("voice_added", consent=consent)
    log.close()
    return failures


def test_records_form_a_chain_across_restarts(tmp_path: Path) -> None:
    """A log that is opened again continues; every character of a field survives."""
    path = tmp_path / "logs" / "audit.jsonl"
    assert write(path, "Anna", "Grüße 🎙️ \ud83d \n\0") == []
    write(path, "Bert")
    chain = verify(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert chain == Chain(3, lines[-1]["hash"])
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert lines[1]["consent"] == "Grüße 🎙️ \ud83d \n\0"
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", DAMAGES)
def test_any_damage_is_found_with_its_line(name: str, tmp_path: Path) -> None:
    """A line that was changed, removed, inserted or moved breaks the chain."""
    path = tmp_path / "audit.jsonl"
    write(path, "Clara", "Anna", "Bert", "Dora")
    lines = DAMAGES[name](path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(AuditBrokenError, match="line [1-4]"):
        verify(path)
    with capture_logs() as logs:
        write(path, "Emil")  # the server starts all the same, and says so
    assert "audit_log_broken" in [line["event"] for line in logs]
    with pytest.raises(AuditBrokenError):
        verify(path)


def test_a_line_that_a_power_failure_cut_is_removed(tmp_path: Path) -> None:
    """The rest of an incomplete last line goes, with a word in the log, and the chain is whole."""
    path = tmp_path / "audit.jsonl"
    write(path, "Anna", "Bert")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AuditBrokenError, match="line 2 is incomplete"):
        verify(path)
    with capture_logs() as logs:
        write(path, "Clara")
    assert "audit_log_line_removed" in [line["event"] for line in logs]
    assert verify(path).lines == 2


def test_two_servers_cannot_write_one_log(tmp_path: Path) -> None:
    """Two writers would break the chain."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, lambda name: None)
    with pytest.raises(InvalidRequestError, match="its own file"):
        AuditLog(path, lambda name: None)
    log.close()
    write(path, "Anna")


@pytest.mark.parametrize("place", ["/dev/null/audit", "/proc/audit"])
def test_a_log_that_cannot_be_opened_is_refused_at_the_start(place: str) -> None:
    """A typing error in the setting must not lose records."""
    with pytest.raises(InvalidRequestError, match="cannot open the audit log"):
        AuditLog(Path(place), lambda name: None)


def test_a_full_disk_is_reported_once_and_its_records_wait() -> None:
    """Nothing is raised; each attempt counts as a failure, and the log says it once."""
    failures: list[str] = []
    with capture_logs() as logs:
        log = AuditLog(Path("/dev/full"), failures.append)
        for number in range(3):
            log.record("voice_added", consent=str(number))
        log.retry()
        log.close()
    assert failures == ["audit_log"] * 4
    errors = [line for line in logs if line["event"] == "log_not_written"]
    assert [(line["log"], line["problem"]) for line in errors] == [
        ("audit_log", "No space left on device")
    ]


def test_records_that_a_full_disk_refused_are_written_later(tmp_path: Path) -> None:
    """Once there is room again, the chain has every record, in order and in one piece."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, lambda name: None)
    log.record("voice_added", consent="Anna")
    with path.open("rb") as reader, open("/dev/full", "ab", buffering=0) as full:
        log._disk.close()  # the first record is written
        good, log._file = log._file, full
        for consent in ("Bert", "Clara"):
            log._pending.append({"event": "voice_added", "consent": consent})
        with pytest.raises(OSError, match="No space"):
            log._write()
        log._file = good
        log._write()
        assert [json.loads(line)["consent"] for line in reader] == ["Anna", "Bert", "Clara"]
    good.close()
    assert verify(path).lines == 3
