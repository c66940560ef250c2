"""docs/http.md has every route and every field."""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
from pydantic import AliasChoices, BaseModel

from testbed.loop_work import loop_work
from testbed.papers import ROOT, table_rows
from testbed.server_process import ServerProcess
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.dialects.cartesia import BytesRequest
from voiceagent_tts.plugins.dialects.elevenlabs_messages import TextRequest
from voiceagent_tts.plugins.speech.containers import CONTENT_TYPES
from voiceagent_tts.plugins.speech.request import SpeechRequest
from voiceagent_tts.server.serve import running

PAGE = "docs/http.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def fields_of(section: str, heading: str) -> list[str]:
    """Names in the first column of the table in a section of the page."""
    after = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = after.split(f"| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
    return [name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])]


async def test_every_route_is_documented(served: ServerProcess) -> None:
    """The first table lists the routes of the OpenAPI schema, and no others."""
    async with httpx.AsyncClient() as http:
        paths = (await http.get(f"{served.url}/openapi.json")).json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {row[0] for row in table_rows(PAGE, "route")} == routes


async def test_the_document_has_the_errors_that_are_sent(served: ServerProcess) -> None:
    """No operation promises 422; those that need a key have all errors that they may send."""
    long = b" " * ((1 << 20) + 1)
    async with httpx.AsyncClient(base_url=served.url) as http:
        document = (await http.get("/openapi.json")).json()
        answers = [
            await http.post("/v1/audio/speech", content=b"{"),
            await http.get("/v1/models/nobody"),
            await http.post("/v1/audio/speech", content=long),
        ]
    assert [answer.status_code for answer in answers] == [400, 404, 413]
    assert not {"422", "HTTPValidationError"} & set(re.findall(r"\w+", json.dumps(document)))
    schemes = document["components"]["securitySchemes"]
    assert schemes and document["security"] == [{name: []} for name in schemes]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/health"):
                assert operation["security"] == []
                continue
            needed = {"400", "401", "403", "404", "429", "503"}
            needed |= {"413"} if "requestBody" in operation else set()
            assert needed <= operation["responses"].keys()
    responses = document["paths"]["/v1/audio/speech"]["post"]["responses"]
    assert "rate_limited" in responses["429"]["description"]


async def test_the_document_takes_no_long_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request has it made beside the loop, once for all that ask meanwhile."""
    async with running(Settings(port=0)) as server:
        with loop_work(monkeypatch) as work:
            asked = (asyncio.to_thread(httpx.get, f"{server.url}/openapi.json") for _ in range(3))
            answers = await asyncio.gather(*asked)
    assert len({answer.text for answer in answers}) == 1 and answers[0].json()["paths"]
    assert work.most < 40_000


def test_every_field_of_a_speech_request_is_documented() -> None:
    """Names, other names and defaults in the table are those of the request's model."""
    documented = {
        name: (re.findall(r"\w+", alias), default)
        for name, alias, default, _ in table_rows(PAGE, "field | also as")
    }
    assert documented.keys() == SpeechRequest.model_fields.keys()
    for name, field in SpeechRequest.model_fields.items():
        others, default = documented[name]
        choices = field.validation_alias
        names = choices.choices if isinstance(choices, AliasChoices) else [name]
        assert [name, *others] == names, name
        if field.is_required():
            assert default == "required"
        elif field.default is not None:
            assert default == f"{field.default}".lower()


def test_every_format_is_documented() -> None:
    (row,) = [row for row in table_rows(PAGE, "field | also as") if row[0] == "response_format"]
    formats = row[3].partition(". ")[0]
    assert set(re.findall(r"`?(\w+)`", formats)) == set(CONTENT_TYPES)


@pytest.mark.parametrize(
    ("section", "request_"),
    [
        ("POST /tts/bytes", BytesRequest),
        ("POST /v1/text-to-speech/{voice_id}", TextRequest),
    ],
)
def test_every_field_of_another_dialect_is_documented(
    section: str, request_: type[BaseModel]
) -> None:
    assert sorted(fields_of(section, "field | default")) == sorted(request_.model_fields)


async def test_every_field_of_a_clone_request_is_documented(served: ServerProcess) -> None:
    """The tables have the fields of the form and of the description, as the schema has them."""
    async with httpx.AsyncClient() as http:
        schema = (await http.get(f"{served.url}/openapi.json")).json()
    for path in ("/v1/audio/voices", "/v1/audio/voices/design"):
        (content,) = schema["paths"][path]["post"]["requestBody"]["content"].values()
        body = schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        section = f"POST {path}"
        assert set(fields_of(section, "field | default")) == body["properties"].keys()
        rows = TEXT.split(f"## {section}\n")[1].split("\n## ")[0]
        required = set(re.findall(r"^\| `(\w+)` \| required \|", rows, re.MULTILINE))
        assert required == set(body["required"])


@pytest.mark.parametrize("path", ["/v1/audio/voices", "/health"])
async def test_every_field_of_an_answer_is_documented(served: ServerProcess, path: str) -> None:
    """The tables of the voices and of the server's state have the fields that are sent."""
    async with httpx.AsyncClient() as http:
        answer: dict[str, Any] = (await http.get(f"{served.url}{path}")).json()
    fields = answer["voices"][0] if path.endswith("voices") else answer
    assert set(fields_of(f"GET {path}", "field")) == fields.keys()


async def test_an_error_has_the_documented_form(served: ServerProcess) -> None:
    """The example has the fields of a real answer, and its code is one of the server's."""
    (example,) = re.findall(r"```json\n(.*?)\n```", TEXT, re.DOTALL)
    body = {"input": "Hi.", "voice": "x"}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{served.url}/v1/audio/speech", json=body)
    shown, sent = json.loads(example)["error"], answer.json()["error"]
    assert shown.keys() == sent.keys()
    assert {**shown, "message": ""} == {**sent, "message": ""}
    assert answer.status_code == ErrorCode(shown["code"]).status
