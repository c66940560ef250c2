"""Says where audio comes from: in the last message of a context, and in answers over HTTP."""

import datetime
import json

from voiceagent_tts.audio.output import DeliveredAudio
from voiceagent_tts.protocol.messages import ProvenanceFields


def provenance_of(
    delivered: DeliveredAudio, model: str, *, is_complete: bool = True
) -> ProvenanceFields:
    """Describe a context's audio.

    Args:
        delivered: the audio.
        model: model that generated the audio.
        is_complete: whether all of it was sent, so that its digest is known.
    """
    return ProvenanceFields(
        sha256=delivered.sha256 if is_complete else None,
        model=model,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        key_id=delivered.key_id,
    )


def provenance_headers(provenance: ProvenanceFields) -> dict[str, str]:
    """The header that says where audio comes from."""
    return {"X-Provenance": json.dumps(provenance.model_dump())}
