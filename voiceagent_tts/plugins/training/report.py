"""The report of a prepared dataset: JSON for programs, a picture for people; no transcripts."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.plugins.training.dataset import ClipEntry
from voiceagent_tts.plugins.training.files import written
from voiceagent_tts.plugins.training.manifest import Rejection

REPORT_FILE, PICTURE_FILE = "report.json", "report.png"


def summarise(
    kept: Sequence[ClipEntry], rejected: Sequence[Rejection], reference: str
) -> dict[str, Any]:
    """Return the report: counts, lengths, and each dropped clip with its reason.

    Args:
        kept: clips of the dataset.
        rejected: clips that were dropped.
        reference: name of the clip that the speaker embedding comes from; "" without clips.
    """
    lengths_s = [entry.frames * FRAME_S for entry in kept]
    texts = Counter(entry.text for entry in kept)
    return {
        "kept": len(kept),
        "dropped": len(rejected),
        "minutes": round(sum(lengths_s) / 60, 2),
        "length_s": _spread(lengths_s),
        "snr_db": _spread([entry.snr_db for entry in kept]),
        "repeated_texts": sum(count - 1 for count in texts.values()),
        "reference": reference,
        "problems": dict(Counter(str(each.problem) for each in rejected)),
        "dropped_clips": [asdict(each) for each in rejected],
    }


def write_report(folder: Path, report: dict[str, Any], lengths_s: Sequence[float]) -> None:
    """Write the report and its picture.

    Args:
        folder: folder of the dataset.
        report: result of `summarise`.
        lengths_s: lengths of the clips that were kept.
    """
    text = json.dumps(report, ensure_ascii=False, indent=1)
    with written(folder / REPORT_FILE) as unfinished:
        unfinished.write_text(text, "utf-8")
    _draw(folder / PICTURE_FILE, report["problems"], lengths_s)


def _spread(numbers: Sequence[float]) -> dict[str, float] | None:
    if not numbers:
        return None
    named = {"min": np.min, "median": np.median, "max": np.max}
    return {name: round(float(function(numbers)), 2) for name, function in named.items()}


def _draw(path: Path, problems: dict[str, int], lengths_s: Sequence[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    lengths, reasons = figure.subplots(1, 2, width_ratios=(2, 1))
    lengths.hist(lengths_s, bins=20, color="tab:blue")
    lengths.set(title=f"{len(lengths_s)} clips kept", xlabel="length [s]", ylabel="clips")
    reasons.barh(list(problems), list(problems.values()), height=0.6, color="tab:red")
    reasons.set(title=f"{sum(problems.values())} clips dropped", xlabel="clips")
    with written(path) as unfinished:
        figure.savefig(unfinished, dpi=120)
