"""Amazon S3, and what speaks its language, through boto3: one request an object, many at once, retried."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.gcs import CONNECTIONS
from shardwright.transforms.storage.objects import StoredObject, content_type
from shardwright.transforms.workers import job_options

#: How often a request is sent that fails for no fault of ours.
_ATTEMPTS = 8
_TIMEOUT = (10, 60)
_NO_KEY = frozenset(("404", "NoSuchKey", "NotFound", "412", "PreconditionFailed"))
#: Answers to a request with a condition that met another one for the same object.
_MET_ANOTHER = frozenset(("409", "ConditionalRequestConflict"))
_PAUSE = 0.05
#: Of what is read again and again while it changes.
_JSON = {"ContentType": "application/json", "CacheControl": "no-store"}
_NO_ACCESS = frozenset(("403", "AccessDenied", "Forbidden", "AllAccessDisabled"))
_NO_LOGIN = frozenset(("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"))
_CREDENTIALS_ADVICE = "run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_lock = threading.Lock()
_made: tuple[Any, Any] = (None, None)


def _client() -> Any:
    """Returns this process's client; threads share its connections, other options make another."""
    global _made
    options = job_options()
    with _lock:
        if _made[0] is None or _made[1] is not options:
            _made = (_make_client(options), options)
        return _made[0]


def _make_client(options: Any) -> Any:
    import boto3
    from apache_beam.options.pipeline_options import PipelineOptions, S3Options
    from botocore.config import Config

    wanted = (options or PipelineOptions([])).view_as(S3Options)
    return boto3.session.Session().client(
        "s3",
        region_name=wanted.s3_region_name,
        api_version=wanted.s3_api_version,
        use_ssl=not wanted.s3_disable_ssl,
        verify=wanted.s3_verify,
        endpoint_url=wanted.s3_endpoint_url,
        aws_access_key_id=wanted.s3_access_key_id,
        aws_secret_access_key=wanted.s3_secret_access_key,
        aws_session_token=wanted.s3_session_token,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            connect_timeout=_TIMEOUT[0],
            read_timeout=_TIMEOUT[1],
        ),
    )


def split_path(path: str) -> tuple[str, str]:
    """Returns the bucket and the object name of an `s3://` path."""
    bucket, _, name = path.removeprefix("s3://").partition("/")
    return bucket, name


def _place(path: str) -> dict[str, str]:
    bucket, name = split_path(path)
    return {"Bucket": bucket, "Key": name}


@contextlib.contextmanager
def _told(doing: str, path: str) -> Iterator[None]:
    """Turns what the client raises into one sentence; what is absent or forbidden is an OSError."""
    try:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )
    except ImportError:
        raise UsageError("s3:// needs boto3; install it with `pip install 'shardwright[aws]'`.") from None

    shown = f"Cannot {doing} {printable(path)}"
    try:
        yield
    except ShardwrightError:
        raise
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise EngineError(f"{shown}: there are no credentials for S3; {_CREDENTIALS_ADVICE}.") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "NoSuchBucket":
            bucket = split_path(path)[0]
            raise EngineError(
                f"{shown}: there is no bucket {bucket}; check its name or make it first."
            ) from error
        if code in _NO_KEY:
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from error
        if code in _NO_ACCESS:
            raise PermissionError(errno.EACCES, "permission denied", path) from error
        if code in _NO_LOGIN:
            raise EngineError(
                f"{shown}: S3 does not accept the credentials ({code}); {_CREDENTIALS_ADVICE}."
            ) from error
        raise _failed(shown, error) from error
    except (BotoCoreError, Boto3Error) as error:
        raise _failed(shown, error) from error


def _failed(shown: str, error: Exception) -> EngineError:
    said = " ".join(str(error).split())[:300].rstrip(".")
    return EngineError(f"{shown}: {said}; check the network, then run again with --resume.")


def _get(path: str, **condition: str) -> bytes:
    """Reads an object; what breaks off in its middle is no failed request, and repeated here."""
    with _told("read", path):
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        for _ in range(_ATTEMPTS - 1):
            answer = _client().get_object(**_place(path), **condition)
            with contextlib.suppress(IncompleteReadError, HTTPClientError):
                return bytes(answer["Body"].read())
        return bytes(_client().get_object(**_place(path), **condition)["Body"].read())


def read_bytes(path: str, version: str = "") -> bytes:
    """Reads an object in one request, only as it was listed if a version is given."""
    return _get(path, **({"IfMatch": f'"{version}"'} if version else {}))


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a stretch of an object in one request.

    Raises:
      EngineError: if the object is not as it was listed.
    """
    if length <= 0 or 0 <= size <= offset:
        return b""
    wanted = {"IfMatch": f'"{version}"'} if version else {}
    try:
        return _get(path, Range=f"bytes={offset}-{offset + length - 1}", **wanted)
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise


def stat(path: str) -> StoredObject | None:
    """Returns what the storage tells of an object, None if there is none."""
    try:
        with _told("look for", path):
            found = _client().head_object(**_place(path))
    except FileNotFoundError:
        return None
    return StoredObject(path, found["ContentLength"], found["ETag"].strip('"'))


def exists(path: str) -> bool:
    """Whether an object is there."""
    return stat(path) is not None


def write_bytes(path: str, data: bytes) -> None:
    """Writes an object in one request: it appears whole or not at all."""
    with _told("write", path):
        _client().put_object(**_place(path), Body=data, ContentType=content_type(path))


def read_tagged(path: str) -> tuple[bytes, str] | None:
    """Reads an object and its ETag; None if there is none."""
    for _ in range(_ATTEMPTS):
        found = stat(path)
        if found is None:
            return None
        with contextlib.suppress(FileNotFoundError):  # written anew since
            return read_bytes(path, found.version), found.version
    raise changed(path)


def write_tagged(path: str, data: bytes, tag: str | None) -> bool:
    """Writes an object if it still has an ETag; None if it must not be there."""
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": f'"{tag}"'}
    return _if_unchanged(
        "write", path, lambda: _client().put_object(**_place(path), Body=data, **_JSON, **condition)
    )


def remove_tagged(path: str, tag: str) -> bool:
    """Removes an object if it still has an ETag."""
    found = stat(path)  # for storages that do not know the condition
    if found is None or found.version != tag:
        return found is None
    done = _if_unchanged("remove", path, lambda: _client().delete_object(**_place(path), IfMatch=f'"{tag}"'))
    return done or stat(path) is None


def _if_unchanged(doing: str, path: str, send: Callable[[], object]) -> bool:
    """Sends a request with a condition; returns whether that held."""
    with _told(doing, path):
        from botocore.exceptions import ClientError

        for attempt in range(_ATTEMPTS):
            try:
                send()
                return True
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code", ""))
                if code in _MET_ANOTHER and attempt < _ATTEMPTS - 1:
                    time.sleep(_PAUSE * 2**attempt)
                elif code in _NO_KEY:  # another state, or none
                    return False
                elif code == "NotImplemented":
                    raise EngineError(
                        f"Cannot {doing} {printable(path)}: this storage knows no conditional requests, "
                        "without which two rebuilds could not tell who was first; use one that does, "
                        "as Amazon S3 and MinIO do."
                    ) from error
                else:
                    raise
    return False


def publish(temporary: str, path: str) -> None:
    """Uploads a finished local file to its final name and removes it; large ones in parts."""
    bucket, name = split_path(path)
    with _told("write", path):
        _client().upload_file(temporary, bucket, name)
    os.unlink(temporary)


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a local copy of an object."""
    bucket, name = split_path(path)
    with tempfile.TemporaryFile() as file:
        with _told("read", path):
            _client().download_fileobj(bucket, name, file)
        file.seek(0)
        yield file


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Yields the objects below a directory, or directly in it, a page at a time."""
    bucket = split_path(directory)[0]
    for page in _pages(directory, deep):
        for item in page.get("Contents", ()):
            if not item["Key"].endswith("/"):  # what consoles make to show an empty folder
                yield StoredObject(f"s3://{bucket}/{item['Key']}", item["Size"], item["ETag"].strip('"'))


def list_folders(directory: str) -> list[str]:
    """Returns the names of the folders directly in a directory."""
    found = [item["Prefix"] for page in _pages(directory, False) for item in page.get("CommonPrefixes", ())]
    return sorted(folder.removeprefix(_prefix(directory))[:-1] for folder in found)


def _prefix(directory: str) -> str:
    name = split_path(directory)[1]
    return f"{name}/" if name and not name.endswith("/") else name


def _pages(directory: str, deep: bool) -> Iterator[Any]:
    with _told("list", directory):
        yield from (
            _client()
            .get_paginator("list_objects_v2")
            .paginate(
                Bucket=split_path(directory)[0],
                Prefix=_prefix(directory),
                **({} if deep else {"Delimiter": "/"}),
            )
        )


def copy(source: str, target: str) -> None:
    """Copies an object on the servers."""
    with _told("copy", source):
        _client().copy(_place(source), *split_path(target))


def remove(path: str) -> None:
    """Removes an object if it is there."""
    with _told("remove", path):
        _client().delete_object(**_place(path))
