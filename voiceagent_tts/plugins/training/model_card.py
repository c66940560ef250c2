"""The model card of a fine-tuned checkpoint: its recordings, its training and its consent."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from voiceagent_tts import __version__
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.training.dataset import Dataset

CARD_FILE, CONSENT_FILE = "README.md", "consent.json"
_MAX_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Consent:
    """What the recorded person agreed to.

    Attributes:
        statement: who agreed, when, and to what, in one line.
    """

    statement: str

    def __post_init__(self) -> None:
        is_line = self.statement.strip() and self.statement.isprintable()
        if not is_line or len(self.statement) > _MAX_CHARS:
            raise InvalidRequestError(
                f"--consent: expected one line of at most {_MAX_CHARS} characters that says who "
                "agreed, when, and to what"
            )


def write_card(
    folder: Path, speaker: str, consent: Consent, run: dict[str, Any], dataset: Dataset
) -> None:
    """Write `README.md` and `consent.json`.

    Args:
        folder: folder of the checkpoint.
        speaker: name of the speaker.
        consent: consent of the recorded person.
        run: content of `run.json`.
        dataset: dataset of the run.
    """
    exported_at = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"speaker": speaker, **asdict(consent), "exported_at": exported_at}
    text = json.dumps(record, ensure_ascii=False, indent=1)
    (folder / CONSENT_FILE).write_text(text, "utf-8")
    minutes = sum(len(each.codes) for each in dataset.examples) * FRAME_S / 60
    options = "\n".join(f"| {name} | {value} |" for name, value in run["options"].items())
    (folder / CARD_FILE).write_text(
        f"""---
base_model: {Path(run["base"]).name}
pipeline_tag: text-to-speech
---

# {speaker}

A voice for Qwen3-TTS, fine-tuned on {len(dataset.examples)} recordings ({minutes:.1f} minutes) of
one speaker by voiceagent-tts {__version__}.

## Consent

{consent.statement}

Recorded in `consent.json` on {exported_at}. Use of this voice beyond that consent is not allowed.
Listeners have to be told that they hear a synthetic voice, where the law asks for it.

## Use

```sh
voiceagent-tts serve --model FOLDER   # speaks as the voice `{speaker}`
```

```python
from qwen_tts import Qwen3TTSModel

model = Qwen3TTSModel.from_pretrained("FOLDER")
samples, rate_hz = model.generate_custom_voice("Hello there.", "{speaker}")
```

## Training

| option | value |
|---|---|
{options}
""",
        "utf-8",
    )
