import json
import re
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from voiceagent_tts.core import WarningCode, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.dialects.cartesia import Cartesia
from voiceagent_tts.plugins.dialects.elevenlabs import ElevenLabs
from voiceagent_tts.plugins.dialects.elevenlabs_messages import SocketOptions
from voiceagent_tts.plugins.dialects.vllm_omni import VllmOmni
from voiceagent_tts.protocol.client_connection import (
    CLOSE_CODES,
    ClientConnection,
    parse_audio,
    parse_server_message,
)
from voiceagent_tts.protocol.messages import (
    AudioBase64Message,
    AudioMessage,
    CancelledMessage,
    ClientMessage,
    ContextOpen,
    ServerMessage,
    SessionLimits,
    parse_client_message,
)
from voiceagent_tts.protocol.server_connection import Dialect, ServerConnection

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
_FOREIGN = re.compile(
    r"^```(vllm-omni|cartesia|elevenlabs) (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_DIALECTS: dict[str, Dialect] = {
    "vllm-omni": VllmOmni(list),
    "cartesia": Cartesia(),
    "elevenlabs": ElevenLabs(
        "nova", SocketOptions.parse({"output_format": "pcm_24000"}), is_multi=True
    ),
}
_BLOCK = re.compile(r"^```json (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = PAGE[PAGE.index("## A complete session") : PAGE.index("## What a client sends")]
_PARSE = {"client": parse_client_message, "server": parse_server_message}


def _examples(text: str) -> list[tuple[str, str]]:
    """Direction and JSON of each example, in order."""
    return [(block[1], line) for block in _BLOCK.finditer(text) for line in block[2].splitlines()]


def _type_names(union: Any) -> set[str]:
    return {get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(union)}


def _stray_keys(given: Any, model: Any) -> set[str]:
    """Keys of an example that the model that read it does not have."""
    if not isinstance(model, BaseModel):
        return set()
    stray = given.keys() - type(model).model_fields.keys()
    return stray.union(
        *(_stray_keys(given[key], getattr(model, key)) for key in given.keys() - stray)
    )


@pytest.mark.parametrize(("direction", "example"), _examples(PAGE))
def test_an_example_is_a_message(direction: str, example: str) -> None:
    """Each example is legal in its direction, and all of its fields exist."""
    message = _PARSE[direction](example)
    assert message is not None
    assert _stray_keys(json.loads(example), message) == set()


def test_every_block_of_json_is_an_example() -> None:
    """No JSON on the page escapes these tests by a missing direction."""
    assert len(_BLOCK.findall(PAGE)) == PAGE.count("```json")


@pytest.mark.parametrize(
    ("direction", "union"), [("client", ClientMessage), ("server", ServerMessage)]
)
def test_every_message_has_an_example(direction: str, union: Any) -> None:
    shown = {json.loads(line)["type"] for side, line in _examples(PAGE) if side == direction}
    assert shown == _type_names(union)


def test_every_field_of_open_is_shown() -> None:
    shown = [json.loads(line) for side, line in _examples(PAGE) if side == "client"]
    opens = [fields.keys() for fields in shown if fields["type"] == "context.open"]
    assert ContextOpen.model_fields.keys() in opens


def test_the_session_can_be_played() -> None:
    """The session is what our two connections say and accept, and its cut is its text."""
    client = ClientConnection()
    server = ServerConnection(
        SessionLimits(max_text_chars=1, context_idle_s=1, max_audio_s=1, max_lead_s=1)
    )
    client.receive(*server.ready(session_id="s", model="m"))
    for direction, line in _examples(_SESSION):
        message = _PARSE[direction](line)
        if direction == "server":
            client.receive(line)
            if isinstance(message, CancelledMessage):
                text = client.record(message.context_id).text
                assert message.text_spoken + message.text_remaining == text
            continue
        fields = json.loads(line)
        method = getattr(client, fields.pop("type").removeprefix("context."))
        assert server.receive(method(**fields)) == [message]
    record = client.record("turn-1")
    for timestamp in record.words:
        word = timestamp.word
        assert record.text[word.char_start : word.char_end] == word.text
    assert record.done is not None
    assert record.done.chars == len(record.text)


def test_the_binary_example_is_right() -> None:
    """The hexadecimal example decodes to what the page says of it, as does its base64 twin."""
    hexadecimal = re.search(r"^01 00 [0-9a-f ]+$", PAGE, re.MULTILINE)
    assert hexadecimal is not None
    audio = parse_audio(bytes.fromhex(hexadecimal[0]))
    assert audio == AudioMessage(258, 3, 1_920, bytes.fromhex("11223344"))
    twins = [parse_server_message(line) for _, line in _examples(PAGE) if '"audio", "c' in line]
    assert twins == [AudioBase64Message.of("turn-2", audio)]


def test_every_code_is_explained() -> None:
    """The tables of errors and close codes are those of the code, with status and retrying."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+(?:, retryable)?) \|", PAGE, re.MULTILINE))
    assert rows == {
        code: f"{code.status}{', retryable' if code.is_retryable else ''}" for code in ErrorCode
    }
    closes = re.findall(r"^\| (\d{4}) \|", PAGE, re.MULTILINE)
    assert [int(code) for code in closes] == list(CLOSE_CODES)


def test_every_warning_is_explained() -> None:
    section = PAGE[PAGE.index("## Warnings") : PAGE.index("## Close codes")]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == ["code", *WarningCode]


def test_every_limit_is_explained() -> None:
    section = PAGE[PAGE.index("## Limits") : PAGE.index("## Compatibility")]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert rows == list(SessionLimits.model_fields)


@pytest.mark.parametrize("name", _DIALECTS)
def test_the_session_of_a_dialect_can_be_played(name: str) -> None:
    """What its client says is taken, and answered to the letter as the page has it."""
    blocks = {side: text for dialect, side, text in _FOREIGN.findall(PAGE) if dialect == name}
    limits = SessionLimits(max_text_chars=1, context_idle_s=1, max_audio_s=1, max_lead_s=1)
    server = ServerConnection(limits, _DIALECTS[name])
    server.ready(session_id="s", model="m")
    commands = [*map(server.receive, blocks["client"].splitlines())]
    assert all(commands)
    (opened,) = (each for each in chain(*commands) if isinstance(each, ContextOpen))
    context_id = opened.context_id
    messages = server.opened(context_id, voice="nova", language="en", seed=None, queue_ms=0)
    words = [
        WordTimestamp(Word("Hi", 0, 2), 2_400, 6_000, confidence=1.0),
        WordTimestamp(Word("there.", 3, 9), 7_200, 16_800, confidence=1.0),
    ]
    messages += server.words(context_id, words)
    messages += server.audio(context_id, bytes.fromhex("11223344"), 0)
    messages += server.done(context_id, "complete", chars=9)
    shown = [line for line in blocks["server"].splitlines() if not line.startswith("(binary")]
    assert [json.loads(line) for line in shown] == [
        json.loads(message) for message in messages if isinstance(message, str)
    ]
    assert ("(binary" in blocks["server"]) == any(
        isinstance(message, bytes) for message in messages
    )
