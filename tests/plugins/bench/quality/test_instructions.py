"""Instructions are judged by an endpoint, whose answers are scripted here."""

import base64
import json
from dataclasses import replace

import pytest

from testbed.quality_clips import spoken
from testbed.scripted_judges import scripted_judge
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.instructions import instruction_values, open_judge


def clip(kind: str, instruction: str) -> Clip:
    """A clip with an instruction."""
    made = spoken("One moment, I am looking it up.")
    return replace(made, item=replace(made.item, kind=kind, instruction=instruction))


def answer(content: object) -> bytes:
    """A chat endpoint's answer."""
    return json.dumps({"choices": [{"message": {"content": content}}]}).encode()


def test_the_share_of_followed_instructions_is_that_of_valid_answers() -> None:
    """Yes, no, and an answer that is neither; the last object of a long answer counts."""
    with scripted_judge() as server:
        server.answers = [
            answer('{"followed": true}'),
            answer('It is not {"followed": true}, as pitch is low: {"followed": false}'),
            answer("I cannot say."),
            answer('```json\n{"followed": true}\n```'),
        ]
        judge = open_judge(f'{server.url}/v1{{"model": "ears"}}', "a key")
        kinds = ("APS", "DSD", "RP", "accent")
        values = instruction_values([clip(kind, f"{kind}!") for kind in kinds], judge)
        requests = [json.loads(body) for _, _, body in server.requests]
    assert values.of == {"followed_percent": [100, 0, 100]}
    assert [each["finding"] for each in values.examples] == ["not followed", "no verdict"]
    assert server.requests[0][:2] == ("/v1/chat/completions", "Bearer a key")
    assert {each["model"] for each in requests} == {"ears"}
    parts = [each["messages"][0]["content"] for each in requests]
    assert len({text["text"] for text, _ in parts}) == 4 and "APS!" in parts[0][0]["text"]
    assert base64.b64decode(parts[0][1]["input_audio"]["data"]).startswith(b"RIFF")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"choices": []}', b"no"])
def test_a_judge_that_fails_is_an_error(body: bytes) -> None:
    """With what to check."""
    with scripted_judge() as server:
        server.answers = [body]
        with pytest.raises(EngineError, match="takes audio"):
            open_judge(server.url)(clip("RP", "A pirate."))
