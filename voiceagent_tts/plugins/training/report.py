"""The report of a prepared dataset, as JSON without transcripts."""

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

REPORT_FILE = "report.json"


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


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write the report, a result of `summarise`, into the folder of the dataset."""
    text = json.dumps(report, ensure_ascii=False, indent=1)
    with written(folder / REPORT_FILE) as unfinished:
        unfinished.write_text(text, "utf-8")


def _spread(numbers: Sequence[float]) -> dict[str, float] | None:
    if not numbers:
        return None
    named = {"min": np.min, "median": np.median, "max": np.max}
    return {name: round(float(function(numbers)), 2) for name, function in named.items()}
