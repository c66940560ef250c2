"""Webhooks: signed, delivered to the address that was checked, and never into this network."""

import contextlib
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.jobs.webhook import NotDeliveredError, Webhooks

SECRET = b"a secret of the receiver"
PUBLIC, PRIVATE = Webhooks(SECRET), Webhooks(SECRET, allows_private=True)


def test_each_key_has_a_secret_of_its_own(receiver: Any) -> None:
    """The code in the documentation tells the key's messages from those of others, and old ones."""
    (code,) = re.findall(r"```python\n(.*?)```", Path("docs/jobs.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    is_genuine = names["is_genuine"]
    for key_id, sent_at in (("one", time.time()), ("other", time.time()), ("one", 0)):
        PRIVATE.of_key(key_id).send(receiver.url, "job-1", b"{}", int(sent_at))
    PRIVATE.of_key(None).send(receiver.url, "job-1", b"{}", int(time.time()))
    secret = PRIVATE.of_key("one").shown_secret
    assert {path for path, *_ in receiver.got} == {"/hook?call=7"}
    got = [(headers, body) for _, headers, body in receiver.got]
    assert [is_genuine(secret, *each) for each in got] == [True, False, False, False]
    changed = (got[0][0], b"{ }")
    assert not is_genuine(secret, *changed)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_other_answers_are_failures(receiver: Any, status: int) -> None:
    """A redirect is not followed, and an error is no delivery."""
    receiver.status = status
    with pytest.raises(NotDeliveredError, match=f"status {status}"):
        PRIVATE.send(receiver.url, "job-1", b"{}", 0)
    assert len(receiver.got) == 1


def test_a_receiver_that_is_away_is_a_failure(free_port: int) -> None:
    """Nothing listens there."""
    with pytest.raises(NotDeliveredError):
        PRIVATE.send(f"http://127.0.0.1:{free_port}/", "job-1", b"{}", 0)


@pytest.mark.parametrize("host", ["example..com", "x" * 64 + ".com"])
def test_a_name_that_cannot_be_looked_up_is_a_failure(host: str) -> None:
    """Python raises another kind of error for it than for a name that nobody has."""
    with pytest.raises(NotDeliveredError):
        PUBLIC.send(f"https://{host}/", "job-1", b"{}", 0)


def test_a_receiver_that_never_ends_its_answer_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole message has a deadline, however often the receiver sends a byte."""
    monkeypatch.setattr("voiceagent_tts.plugins.jobs.webhook.TIMEOUT_S", 0.3)
    is_over = threading.Event()

    def answer_slowly(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 204 OK\r\nX-Slow: ")
            for _ in range(200):
                if is_over.wait(0.05):
                    return
                connection.sendall(b".")
            connection.sendall(b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_slowly, args=[listener])
        thread.start()
        with pytest.raises(NotDeliveredError):
            PRIVATE.send(f"http://127.0.0.1:{listener.getsockname()[1]}/", "job-1", b"{}", 0)
        is_over.set()
        thread.join()


def test_a_name_whose_look_up_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its resolver may take half a minute; the thread that sends goes on to the next message."""
    monkeypatch.setattr("voiceagent_tts.plugins.jobs.webhook.TIMEOUT_S", 0.1)
    is_over, has_ended = threading.Event(), threading.Event()

    def look_up(*_arguments: object, **_options: object) -> list[Any]:
        is_over.wait(PATIENCE_S)
        has_ended.set()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(NotDeliveredError):
        PUBLIC.send("https://example.com/", "job-1", b"{}", 0)
    assert not has_ended.is_set()
    is_over.set()
    assert has_ended.wait(PATIENCE_S)


def test_names_of_this_machine_get_nothing(receiver: Any) -> None:
    """A public-looking name that resolves to this machine is refused when the message is sent."""
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(NotDeliveredError, match="private network"):
            PUBLIC.send(f"http://{host}:{receiver.server_port}/", "job-1", b"{}", 0)
    assert not receiver.got


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https://user:password@example.com/",
        "https://:password@example.com/",
        "https://[fec0::2]/",
        "https://[64:ff9b:1::a00:1]/",
        "https://[::a00:1]/",
        "https://example.com:port/",
        "https://[::1",
        "https://example.com/\r\nHost: x",
        "https://example.com/ ",
        "https://exämple.com/",
        "https://example.com/" + "x" * 100_000,
        "https://example..com/",
        "https://" + "x" * 64 + ".com/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://192.0.0.192/",
        "https://[::ffff:192.0.0.192]/",
        "https://192.168.1.1:8443/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::10.0.0.1]/",
        "https://[2002:a00:1::1]/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
    ],
)
def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    """A job is not accepted for it."""
    with pytest.raises(InvalidRequestError) as refused:
        PUBLIC.check(url)
    assert refused.value.code is ErrorCode.INVALID_PARAM


def test_public_addresses_are_accepted() -> None:
    """By name or by number, also of a private network where the server allows these."""
    PUBLIC.check("https://example.com/hooks/7?a=b")
    PUBLIC.check("https://8.8.8.8:8443/")
    PUBLIC.check("https://[64:ff9b::8.8.8.8]/")
    PUBLIC.check("https://[2606:4700::1111]/")
    PRIVATE.check("http://10.0.0.1/")


def test_the_secret_is_not_shown() -> None:
    """It is in no log."""
    assert "secret" not in repr(PUBLIC)
