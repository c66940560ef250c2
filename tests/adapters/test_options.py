import math
from collections.abc import Callable
from typing import Any

import pytest

from voiceagent_tts.adapters.options import (
    check_count,
    check_not_negative,
    check_positive,
    check_sample_rate,
    check_speech,
    checked_connection,
)
from voiceagent_tts.errors import InvalidRequestError


@pytest.mark.parametrize(
    "headers",
    [
        "X: a",
        {"": "secret"},
        {5: "secret"},
        {"X\r\nY": "secret"},
        {"X": "secret\nY: b"},
        {"X": "secr\u00e9t"},
        {"X": None},
    ],
)
def test_headers_that_no_request_can_carry_are_refused(headers: Any) -> None:
    """The error names the header, and never its value."""
    with pytest.raises(InvalidRequestError, match="extra_headers: expected ") as refused:
        checked_connection(None, None, headers)
    assert "secr" not in str(refused.value)


def test_what_a_proxy_requires_is_accepted() -> None:
    """Names and values as RFC 9110 has them."""
    forwarded = {"X-Forwarded-For": "::1, 10.0.0.1"}
    address, headers = checked_connection("https://tts.example.com/a", "key", forwarded)
    assert address == "wss://tts.example.com/a"
    assert headers == forwarded | {"Authorization": "Bearer key"}
    assert checked_connection("ws://host", None, None) == ("ws://host/v1/tts/ws", {})


@pytest.mark.parametrize("language", ["klingon", "sv-SE", "en us"])
def test_a_language_that_no_server_knows_is_refused(language: str) -> None:
    """Every turn in it would fail; only the server knows whether it speaks a known one."""
    for known in ("en", "en-GB", "German", "zh-Hans-CN", None):
        check_speech(language=known)
    with pytest.raises(InvalidRequestError, match="expected a language among"):
        check_speech(language=language)


@pytest.mark.parametrize("value", [0, 12345, 24000.0, "24000", None])
def test_a_sample_rate_that_no_server_has_is_refused(value: object) -> None:
    """With the rates that there are."""
    with pytest.raises(InvalidRequestError, match=f"sample_rate: .*48000, got {value!r}"):
        check_sample_rate(value)


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (check_positive, [0, -1, math.inf, math.nan, True, "1", None]),
        (check_not_negative, [-0.1, math.inf, math.nan, True, "1", None]),
        (check_count, [-1, 2.5, True, "1", None]),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    check: Callable[..., None], values: list[object]
) -> None:
    """With the option and its value."""
    for value in values:
        with pytest.raises(InvalidRequestError, match=f"wait_s: expected .*, got {value!r}"):
            check(wait_s=value)
