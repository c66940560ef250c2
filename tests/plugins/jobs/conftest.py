"""Where the news of jobs arrives."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.http_server import Receiver, answering


class NewsReceiver(Receiver):
    """Keeps each message, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 204
        self.url += "/hook?call=7"

    @property
    def news(self) -> list[dict[str, Any]]:
        """The messages."""
        return [json.loads(body) for *_, body in self.got]

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A redirection leads here again."""
        return self.status, {"Location": self.url} if self.status == 302 else {}, b""


@pytest.fixture
def receiver() -> Iterator[NewsReceiver]:
    """A receiver on this machine within the test."""
    with answering(NewsReceiver()) as server:
        yield server
