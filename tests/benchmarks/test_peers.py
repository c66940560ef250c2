"""The comparison with peers: each side is measured or reported with the reason why not."""

from pathlib import Path

import pytest

from benchmarks.engine.peer_packages import Peer
from benchmarks.engine.peers import Contest, Side, Standing, figures_of, sides_on, table_of

CHECKPOINT = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"


@pytest.fixture
def contest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contest:
    """A contest on a tiny model with one round."""
    monkeypatch.chdir(tmp_path)
    return Contest(CHECKPOINT, "float32", 16, 1, tmp_path / "packages", tmp_path / "wheels")


def test_our_side_is_measured(contest: Contest) -> None:
    """Our side has a first audio and frames per second, by size of its chunks."""
    *_, ours = sides_on("cpu")
    standing = contest.measure(ours)
    assert not standing.skipped
    assert standing.first_audio_ms and standing.first_audio_ms > 0
    assert standing.frames_per_s and standing.frames_per_s > 0
    assert list(standing.by_chunk) == ["12"]


def test_a_side_without_its_packages_is_skipped(contest: Contest, tmp_path: Path) -> None:
    """Without network and wheels the reason is reported, and no partial folder is used."""
    (tmp_path / "wheels").mkdir()
    side = Side("absent", "official_speaker", (), peer=Peer("absent", ("no-such-package==1.0",)))
    standing = contest.measure(side)
    assert standing.skipped == "its packages could not be installed"
    assert not (contest.packages / "absent").exists()


def test_a_side_that_fails_is_skipped_with_its_reason(contest: Contest) -> None:
    """A side that fails is reported with the last line of its log."""
    standing = contest.measure(Side("odd", "our_speaker", ("packed", "nobody", "cpu"), (1,)))
    assert "nobody" in standing.skipped
    assert figures_of([standing, Standing("ours", 10.0, 100.0)]) == {
        "odd": {"skipped": standing.skipped},
        "ours": {"first_audio_ms": 10.0, "frames_per_s": 100.0, "by_chunk": {}},
    }


def test_ratios_are_theirs_over_ours() -> None:
    """Ratios above one mean that ours is faster; the table has one line per chunk size."""
    by_chunk = {"1": {"first_audio_ms": 50.0, "frames_per_s": 20.0}}
    standings = [Standing("faster", 50.0, 40.0, by_chunk), Standing("ours", 10.0, 200.0)]
    figures = figures_of(standings)
    assert figures["first_audio_ratio_faster"] == 5.0
    assert figures["frames_ratio_faster"] == 5.0
    assert table_of(figures, ["faster", "ours"]).row_count == 1
