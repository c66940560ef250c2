"""What a run says of figures that are doubtful."""

from voiceagent_tts.plugins.bench.figures import warnings_of


def test_doubtful_figures_are_named() -> None:
    """A late client and few utterances make percentiles doubtful."""
    good = {"load": "1 at once", "utterances": 30, "client_lag_p99_ms": 1.0, "failures": {}}
    late = {**good, "target": "a", "client_lag_p99_ms": 25.0}
    few = {**good, "target": "b", "utterances": 3}
    sections = [late, few, {**good, "target": "c"}]
    assert [warning.split(":")[0] for warning in warnings_of(sections)] == [
        "a, 1 at once", "b, 1 at once",
    ]  # fmt: skip
