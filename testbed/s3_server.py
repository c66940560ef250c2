"""A real S3 server, that of moto, which can go away and come back with what it has stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

SECRET = "a-secret-access-key"


class S3Server:
    """A server on a port of this machine with an empty bucket.

    Attributes:
        bucket: name of the bucket.
    """

    bucket = "speech"

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: ThreadedMotoServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead boto3 to it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Answer requests, with what was stored before."""
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        """Answer no more requests; idempotent."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def forget(self) -> None:
        """Forget what was stored; the objects of all servers of this process are in one place."""
        s3_backends.reset()

    def objects(self) -> dict[str, bytes]:
        """The contents of all objects by their keys."""
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", ())
        return {each["Key"]: self.get(each["Key"]) for each in listed}

    def get(self, key: str) -> bytes:
        """The content of an object."""
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def put(self, key: str, content: bytes) -> None:
        """Store an object, as another program would."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def delete(self, key: str) -> None:
        """Delete an object, as another program would."""
        self.client.delete_object(Bucket=self.bucket, Key=key)

    @property
    def client(self) -> Any:
        """A client of its own."""
        return boto3.client("s3")


@contextmanager
def s3_server(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Serve an empty bucket within the block, to which boto3 is led by the environment."""
    server = S3Server(port)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    server.client.create_bucket(Bucket=server.bucket)
    try:
        yield server
    finally:
        server.stop()
        server.forget()
