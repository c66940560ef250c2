"""Where the news of jobs arrives."""

import json
from collections.abc import Iterator
from http.server import HTTPServer
from typing import Any

import pytest

from testbed.http_server import Handler, answering


class Receiver(HTTPServer):
    """Keeps the path, the headers and the body of each message."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.url = f"http://127.0.0.1:{self.server_port}/hook?call=7"
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def news(self) -> list[dict[str, Any]]:
        """The messages."""
        return [json.loads(body) for *_, body in self.got]


class _Handler(Handler):
    server: Receiver

    def do_POST(self) -> None:
        """Keep a message."""
        self.server.got.append((self.path, dict(self.headers), self.read_body()))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on this machine within the test."""
    with answering(Receiver()) as server:
        yield server
