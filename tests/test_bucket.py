"""Objects of a bucket on a real S3 server: whole, under one prefix, and errors without secrets."""

import socket
from collections.abc import Iterator

import pytest

from testbed.s3_server import SECRET, S3Server, s3_server
from voiceagent_tts.bucket import Bucket, BucketError
from voiceagent_tts.errors import InvalidRequestError

pytestmark = pytest.mark.services


@pytest.fixture
def s3(free_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server."""
    with s3_server(free_port, monkeypatch) as server:
        yield server


def opened(address: str) -> Bucket:
    """The bucket at an address."""
    return Bucket(address, "setting", answer_s=5.0)


@pytest.mark.parametrize("prefix", ["", "/", "/a", "/a/b/"])
def test_objects_are_kept_under_a_prefix(s3: S3Server, prefix: str) -> None:
    """They are stored, replaced, listed and deleted; those outside the prefix are not seen."""
    bucket = opened(f"s3://{s3.bucket}{prefix}")
    s3.put("ab/outside", b"other")
    etag = bucket.put("x", b"one")
    assert bucket.get("x") == b"one" and bucket.get("y") is None
    listed = [each for each in bucket.objects() if each.name == "x"]
    assert [(each.etag, each.size_bytes) for each in listed] == [(etag, 3)]
    assert bucket.put("x", b"two") != etag and bucket.get("x") == b"two"
    assert f"{prefix.strip('/')}/x".lstrip("/") in s3.objects()
    bucket.delete("x")
    bucket.delete("x")
    assert bucket.get("x") is None and s3.get("ab/outside") == b"other"
    assert prefix in ("", "/") or bucket.objects() == []


def test_an_object_is_created_once(s3: S3Server) -> None:
    """The first one stays, and the bucket knows its age."""
    bucket = opened(f"s3://{s3.bucket}/a")
    assert bucket.age_s("lock") is None
    assert bucket.create("lock", b"first") and not bucket.create("lock", b"second")
    assert bucket.get("lock") == b"first"
    age_s = bucket.age_s("lock")
    assert age_s is not None and -1 <= age_s < 60


def test_errors_name_the_failure_and_no_secret(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the bucket is missing, the server is away, or the address has a password in it."""
    with pytest.raises(BucketError, match="^S3: NoSuchBucket$"):
        opened("s3://missing").put("x", b"")
    s3.stop()
    address = s3.environment["AWS_ENDPOINT_URL"].replace("//", f"//user:{SECRET}@")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(BucketError) as caught:
        opened(f"s3://{s3.bucket}").objects()
    assert str(caught.value).startswith("S3: ") and SECRET not in str(caught.value)


def test_a_server_that_does_not_answer_is_given_up(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two attempts of `answer_s` each."""
    bucket = Bucket(f"s3://{s3.bucket}", "setting", answer_s=0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host, port = silent.getsockname()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        silent_bucket = Bucket(f"s3://{s3.bucket}", "setting", answer_s=0.2)
        with pytest.raises(BucketError, match="^S3: ReadTimeoutError$"):
            silent_bucket.put("x", b"content")
    assert bucket.get("x") is None


def test_an_address_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting, or the variables."""
    with pytest.raises(InvalidRequestError, match="setting: expected s3://BUCKET"):
        opened("s3:///prefix")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(InvalidRequestError, match="setting: expected usable AWS"):
        opened("s3://bucket/prefix")
