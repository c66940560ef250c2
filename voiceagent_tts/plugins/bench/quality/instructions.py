"""Whether instructions were followed, as InstructTTSEval asks: a judge listens, and says yes or no.

The judge is any OpenAI-compatible chat endpoint whose model takes audio. It is asked for each clip
whether the style agrees with the instruction: attributes one by one (APS), a description (DSD), or
a role (RP). The figure is the share of `true` among its valid answers. The words of the question
are this project's; figures of the paper need its question and its judge, Gemini 2.5 Pro.

Source: Huang et al., "InstructTTSEval" (2025), KexinHUANG19/InstructTTSEval, `eval/README.md`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from voiceagent_tts.client import authorization
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.measures import Values
from voiceagent_tts.plugins.bench.quality.opinions import wav_of
from voiceagent_tts.plugins.bench.quality.transcribers import split_address

Judge = Callable[[Clip], bool | None]
"""A clip with an instruction -> whether it was followed; None for an answer that says neither.

Raises:
    EngineError: the judge cannot be reached.
"""

_TIMEOUT_S = 180.0
_QUESTIONS = {
    "APS": "The instruction lists attributes of the voice, such as pitch, pace, volume, age, "
    "emotion and tone. Check each of them. All that matter must be right.",
    "DSD": "The instruction describes a way of speaking in free words. The speech must agree with "
    "the description as a whole, without a contradiction.",
    "RP": "The instruction names a role or a scene. The speech must sound as such a person would "
    "sound there.",
    "accent": "The instruction names an accent or a dialect. A native listener must hear it.",
}
_ANSWER = (
    "Judge only how it is spoken, not the words and not the quality of the recording. "
    'Answer with one JSON object: {"followed": true} or {"followed": false}.'
)
_OBJECT = re.compile(r"\{[^{}]*\}")


def open_judge(address: str, key: str = "") -> Judge:
    """Make the judge behind `http://HOST[/v1][{"model": ...}]`; other fields go into its requests.

    Raises:
        InvalidRequestError: what follows the address is not a JSON object.
    """
    url, arguments = split_address(address)

    def judge(clip: Clip) -> bool | None:
        body = {"temperature": 0, **arguments, "messages": [_message(clip)]}
        return _verdict(_ask(f"{url}/v1/chat/completions", key, body))

    return judge


def instruction_values(clips: Sequence[Clip], judge: Judge) -> Values:
    """Share of the instructions that the judge finds followed."""
    values = Values()
    for clip in clips:
        verdict = judge(clip)
        if verdict is not None:
            values.add_share("followed_percent", verdict)
        if not verdict:
            finding = "no verdict" if verdict is None else "not followed"
            values.examples.append({"item": clip.item.name, "finding": finding,
                                    "instruction": clip.item.instruction})  # fmt: skip
    return values


def _message(clip: Clip) -> dict[str, Any]:
    item = clip.item
    question = _QUESTIONS.get(item.kind, _QUESTIONS["DSD"])
    text = f"{question}\n\nInstruction: {item.instruction}\n\nWords: {item.text}\n\n{_ANSWER}"
    audio = {"data": b64encode(wav_of(clip.samples)).decode(), "format": "wav"}
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": text},
            {"type": "input_audio", "input_audio": audio},
        ],
    }


def _ask(url: str, key: str, body: dict[str, Any]) -> str:
    try:
        headers = authorization(key or None)
        answer = httpx.post(url, json=body, headers=headers, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"{url}: expected an answer of a judge, got {type(error).__name__}; check the address, "
            "the key, and that its model takes audio"
        ) from error


def _verdict(answer: str) -> bool | None:
    """The last object with `followed`; None if there is none."""
    for found in reversed(_OBJECT.findall(answer)):
        try:
            followed = json.loads(found).get("followed")
        except ValueError:
            continue
        if isinstance(followed, bool):
            return followed
    return None
