"""How often is unmarked audio reported as marked?

Every clip of 3 s is examined once, by one key of its own, as a file of its own. The clips are cut
without overlap from utterances that are made once, so all of them are independent draws of the
score. The result has the highest score of each kind of audio, and the upper end of the 95 %
confidence interval of the rate.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.watermark.clips import (
    CLIP_S,
    Clip,
    of_espeak,
    of_flite,
    of_noise,
    of_people,
    of_tones,
)
from voiceagent_tts.plugins.provenance.detector import MAX_FALSE_ALARMS, detect
from voiceagent_tts.plugins.provenance.keys import KEY_BYTES, WatermarkKey

_RESULT = Path("benchmarks/results/watermark_false_alarms.json")
_RULE_OF_THREE = -np.log(0.05)
"""Upper end of a 95 % interval for a rate, times the draws, if nothing happened in any of them."""


def examine(clips: Iterator[Clip], seed: int) -> dict[str, Any]:
    """Examine clips; every clip gets a key of its own."""
    rng = np.random.default_rng(seed)
    found = [detect(clip, [WatermarkKey(rng.bytes(KEY_BYTES))]) for clip in clips]
    scores = np.array([each.score for each in found])
    return {
        "clips": len(found),
        "false_alarms": sum(each.is_marked for each in found),
        "highest_score": round(float(scores.max()), 2),
        "p99_score": round(float(np.percentile(scores, 99)), 2),
        "threshold": found[0].threshold,
    }


def main(
    speech: Annotated[int, typer.Option(min=1, help="Clips of espeak; half as many of flite.")] = (
        5000
    ),
    others: Annotated[int, typer.Option(min=1, help="Clips each of noise and of tones.")] = 1500,
) -> None:
    """Examine unmarked clips, and write the result that the documents quote."""
    kinds = {
        "espeak": itertools.islice(of_espeak(), speech),
        "flite": itertools.islice(of_flite(), speech // 2),
        "people": of_people(),
        "noise": itertools.islice(of_noise(), others),
        "tones": itertools.islice(of_tones(), others),
    }
    results = {kind: examine(clips, number) for number, (kind, clips) in enumerate(kinds.items())}
    table = Table("kind", *next(iter(results.values())))
    for kind, row in results.items():
        table.add_row(kind, *map(str, row.values()))
    Console(stderr=True).print(table)
    clips = sum(row["clips"] for row in results.values())
    alarms = sum(row["false_alarms"] for row in results.values())
    publish(
        {
            "clip_s": CLIP_S, "clips": clips, "false_alarms": alarms,
            "rate_below": None if alarms else round(float(_RULE_OF_THREE) / clips, 6),
            "proven_bound": MAX_FALSE_ALARMS, "kinds": results, **provenance(),
        },
        _RESULT,
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
