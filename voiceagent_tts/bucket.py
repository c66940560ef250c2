"""Objects under one prefix of a bucket of S3, or of a server that speaks its protocol.

Address and credentials are those of boto3: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and others. An
error names the kind of the failure alone: the message of a library may quote an address with a
password. Knows nothing of what the objects are.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.extras import install_hint

_S3 = "s3://"
_CONNECT_S = 2.0
_ATTEMPTS = 2


class BucketError(OSError):
    """The bucket cannot be reached, or refuses the request."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a bucket.

    Attributes:
        name: its name behind the prefix.
        etag: changes with its content.
        size_bytes: size of its content.
        modified_at: when it was stored, in seconds since 1970.
    """

    name: str
    etag: str
    size_bytes: int
    modified_at: float


def is_bucket(address: str) -> bool:
    """Whether an address is that of a bucket, and not a path."""
    return address.startswith(_S3)


class Bucket:
    """The objects under one prefix. Methods block and may be called by many threads.

    Args:
        address: `s3://BUCKET/PREFIX` of an existing bucket.
        setting: name of the setting with the address, for messages.
        answer_s: longest wait for a part of an answer, in seconds.

    Raises:
        InvalidRequestError: the extra is missing, or the address cannot be used.
    """

    def __init__(self, address: str, setting: str, *, answer_s: float) -> None:
        bucket, _, prefix = address.removeprefix(_S3).partition("/")
        if not bucket:
            raise InvalidRequestError(f"{setting}: expected s3://BUCKET/PREFIX, got no bucket")
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError:
            raise InvalidRequestError(
                f"{setting}: S3 needs the package 'boto3': {install_hint('s3')}"
            ) from None
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=answer_s,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        try:
            self._client: Any = boto3.client("s3", config=config)
        except (BotoCoreError, ValueError) as error:
            raise InvalidRequestError(
                f"{setting}: expected usable AWS_* variables, got {type(error).__name__}"
            ) from None
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def put(self, name: str, data: bytes, content_type: str = "application/octet-stream") -> str:
        """Store an object, or replace it: it is complete, or not there; returns its ETag.

        Raises:
            BucketError: it may have been stored or not.
        """
        with _explained():
            answer = self._client.put_object(
                **self._place(name), Body=data, ContentType=content_type
            )
        return answer["ETag"]

    def create(self, name: str, data: bytes) -> bool:
        """Store an object unless there is one of this name; returns whether it was stored.

        Raises:
            BucketError: it may have been stored or not.

        Source: conditional writes of S3, `If-None-Match: *`; 409 is a write at the same moment.
        """
        from botocore.exceptions import ClientError

        with _explained():
            try:
                self._client.put_object(**self._place(name), Body=data, IfNoneMatch="*")
            except ClientError as error:
                if _status(error) in (409, 412):
                    return False
                raise
        return True

    def get(self, name: str) -> bytes | None:
        """Return an object; None if there is none.

        Raises:
            BucketError: it cannot be read.
        """
        from botocore.exceptions import ClientError

        with _explained():
            try:
                return self._client.get_object(**self._place(name))["Body"].read()
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                    return None
                raise

    def age_s(self, name: str) -> float | None:
        """Return the time since an object was stored, by the bucket's clock; None without it.

        Raises:
            BucketError: the bucket does not say.
        """
        from botocore.exceptions import ClientError

        with _explained():
            try:
                answer = self._client.head_object(**self._place(name))
            except ClientError as error:
                if _status(error) == 404:
                    return None
                raise
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return (now - answer["LastModified"]).total_seconds()

    def objects(self) -> list[StoredObject]:
        """Return all objects under the prefix.

        Raises:
            BucketError: the bucket does not list them.
        """
        pages = self._client.get_paginator("list_objects_v2")
        with _explained():
            return [
                StoredObject(
                    each["Key"].removeprefix(self._prefix),
                    each["ETag"],
                    each["Size"],
                    each["LastModified"].timestamp(),
                )
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix)
                for each in page.get("Contents", ())
            ]

    def delete(self, name: str) -> None:
        """Delete an object, if there is one.

        Raises:
            BucketError: it may have been deleted or not.
        """
        with _explained():
            self._client.delete_object(**self._place(name))

    def link(self, name: str, valid_s: int) -> str:
        """Return a link that works without credentials for `valid_s` seconds."""
        return self._client.generate_presigned_url(
            "get_object", Params=self._place(name), ExpiresIn=valid_s
        )

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{name}"}


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        raise BucketError(f"S3: {code or _status(error)}") from None
    except BotoCoreError as error:
        raise BucketError(f"S3: {type(error).__name__}") from None


def _status(error: Any) -> int | None:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
