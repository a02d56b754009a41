"""Amazon S3 and compatible storages: one request per object, many at once, with retries.

boto3 sends all requests except most reads, which take the quick way of `quick_reads`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from urllib.parse import urlsplit

from shardwright.schemas.errors import EngineError, ShardwrightError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.missing_packages import needed_by
from shardwright.transforms.concurrency.pool import CONNECTIONS
from shardwright.transforms.storage.deadlines import timed_pools
from shardwright.transforms.storage.faults import changed, is_too_slow, no_answer_of_its_own, too_slow
from shardwright.transforms.storage.listings import (
    BadListing,
    ListedPage,
    folder_prefix,
    listed_pages,
    objects_of,
)
from shardwright.transforms.storage.quick_reads import QuickReader, client_options, is_md5, no_retries
from shardwright.transforms.storage.retrying_client import RetryingClient
from shardwright.transforms.storage.stored_object import (
    NoConditions,
    ObjectTooLarge,
    StoredObject,
    content_type,
)
from shardwright.transforms.storage.versioned_reads import local_copy, read_latest

#: Number of attempts of the client itself, so that losing one part does not repeat a whole upload.
_ATTEMPTS_IN_CLIENT = 3
#: Number of attempts of a conditional request that conflicts with another one.
_ATTEMPTS = 8
#: Seconds to wait for a connection and for the next bytes; `deadlines` shortens both.
_TIMEOUT = (10, 60)
#: Size of a part of a large object in bytes.
_PART_BYTES = 16 << 20
_COPY_BYTES = 1 << 18
_RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
#: S3's answers with 400 or 503 to a request that may succeed later.
_RETRIED_CODES = frozenset(
    ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "InternalError",
     "ServiceUnavailable", "RequestLimitExceeded", "BandwidthLimitExceeded", "BadDigest")
)  # fmt: skip
_NO_KEY = frozenset(("404", "NoSuchKey", "NotFound", "412", "PreconditionFailed"))
#: Answers to a conditional request that conflicts with another one for the same object.
_MET_ANOTHER = frozenset(("409", "ConditionalRequestConflict"))
_PAUSE = 0.05
#: Headers of files that are read while they change, such as the pointer to the latest version.
_JSON = {"ContentType": "application/json", "CacheControl": "no-store"}
_NO_ACCESS = frozenset(("403", "AccessDenied", "Forbidden", "AllAccessDisabled"))
_NO_LOGIN = frozenset(("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"))
_CREDENTIALS_ADVICE = "run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
#: Region in the signature of a request to S3 itself; S3 Express signs otherwise.
_SIGNED_REGION = re.compile(r"/\d{8}/([^/]+)/s3/aws4_request\b")
#: How long obstore may use credentials. boto3's are valid for at least 10 minutes when it hands them out.
_CREDENTIALS_LIVE = timedelta(minutes=10)
_sent = threading.local()


def _make_client(options: Any) -> Any:
    import boto3
    from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool
    from botocore.config import Config

    client = boto3.session.Session().client(
        "s3",
        **_chosen(options),
        config=Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS_IN_CLIENT},
            max_pool_connections=CONNECTIONS,
            connect_timeout=_TIMEOUT[0],
            read_timeout=_TIMEOUT[1],
        ),
    )
    session = client._endpoint.http_session
    session._pool_classes_by_scheme.update(timed_pools(AWSHTTPConnectionPool, AWSHTTPSConnectionPool))
    client.meta.events.register("before-send.s3.GetObject", _note_request)
    return client


def _note_request(request: Any, **_: Any) -> None:
    """Keeps the request that boto3 sends in this thread."""
    _sent.request = request


def _quick_reader(client: Any, bucket: str) -> QuickReader | None:
    """Returns a quick reader that asks the server that boto3 has just read from; None if obstore cannot.

    Only boto3 knows all settings of Amazon's tools and follows a bucket to its region. Copying the address
    and the region of a request that succeeded keeps to both.
    """
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError:
        return None
    request, credentials = _sent.request, client._request_signer._credentials
    place = urlsplit(request.url)
    signature = request.headers.get("Authorization", b"")
    region = _SIGNED_REGION.search(signature.decode() if isinstance(signature, bytes) else signature)
    is_host = place.netloc.startswith(f"{bucket}.")
    if credentials is None or region is None:
        return None
    if place.scheme == "https" and client._endpoint.http_session._verify is not True:
        return None  # obstore would trust the system's certificates, too
    if not is_host and not place.path.startswith(f"/{bucket}/"):
        return None

    def frozen() -> dict[str, Any]:
        found = credentials.get_frozen_credentials()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LIVE,
        }

    store: Any = S3Store
    try:
        made = store(
            bucket,
            # These take precedence over the environment, which obstore reads, too.
            aws_endpoint_url_s3=f"{place.scheme}://{place.netloc}",
            virtual_hosted_style_request=is_host,
            region=region[1],
            credential_provider=frozen,
            s3_express=False,
            skip_signature=False,
            request_payer=False,
            unsigned_payload=False,
            client_options=client_options(request.url),
            retry_config=no_retries(),
        )
    except Exception:  # obstore does not accept some variable of the environment
        return None
    return QuickReader(made)


def _chosen(options: Any) -> dict[str, Any]:
    """Returns what Beam's options say about the client; nothing if Beam is not in use."""
    if options is None:
        return {}
    from apache_beam.options.pipeline_options import S3Options

    wanted = options.view_as(S3Options)
    return {
        "region_name": wanted.s3_region_name,
        "api_version": wanted.s3_api_version,
        "use_ssl": not wanted.s3_disable_ssl,
        "verify": wanted.s3_verify,
        "endpoint_url": wanted.s3_endpoint_url,
        "aws_access_key_id": wanted.s3_access_key_id,
        "aws_secret_access_key": wanted.s3_secret_access_key,
        "aws_session_token": wanted.s3_session_token,
    }


def _transfers() -> Any:
    """Returns the settings for large objects: transferred in parts, by the thread of the operation."""
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, use_threads=False)


def split_path(path: str) -> tuple[str, str]:
    """Returns the bucket and the object name of an `s3://` path."""
    bucket, _, name = path.removeprefix("s3://").partition("/")
    return bucket, name


def _place(path: str) -> dict[str, str]:
    bucket, name = split_path(path)
    return {"Bucket": bucket, "Key": name}


@contextlib.contextmanager
def _translated_errors(doing: str, path: str) -> Iterator[None]:
    """Turns errors of the client into one sentence; missing or forbidden objects raise an OSError."""
    with needed_by("s3://"):
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )
        from botocore.parsers import ResponseParserError

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
    except (BotoCoreError, Boto3Error, ResponseParserError, BadListing) as error:
        if is_too_slow(error):
            raise too_slow(doing, printable(path)) from error
        if isinstance(error, ResponseParserError | BadListing):
            raise no_answer_of_its_own(doing, printable(path), "S3") from error
        raise _failed(shown, error) from error


def _failed(shown: str, error: Exception) -> EngineError:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import ClientError

    under = error.__cause__ or error.__context__
    cause = under if isinstance(error, Boto3Error) and isinstance(under, Exception) else error
    if isinstance(cause, ClientError) and _is_transient(cause):
        text = f"S3 answers with {cause.response['ResponseMetadata']['HTTPStatusCode']} again and again"
    elif _is_transient(cause):
        text = f"S3 does not answer ({type(cause).__name__}) again and again"
    else:
        text = words_of(error).rstrip(".")
    return EngineError(f"{shown}: {text}; check the network, then run again with --resume.")


def _is_transient(error: Exception) -> bool:
    """Returns whether the same request may succeed later."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import (
        ClientError,
        ConnectionError,
        FlexibleChecksumError,
        HTTPClientError,
        IncompleteReadError,
    )
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status in _RETRIED_STATUSES or answer.get("Error", {}).get("Code") in _RETRIED_CODES
    if isinstance(error, Boto3Error):  # raised by a transfer; its cause is the error
        cause = error.__cause__ or error.__context__
        return isinstance(cause, Exception) and _is_transient(cause)
    return isinstance(
        error,
        HTTPClientError | ConnectionError | FlexibleChecksumError | IncompleteReadError | ResponseParserError
        | BadListing,
    )  # fmt: skip


_sdk = RetryingClient(_make_client, _translated_errors, _is_transient)
_client, _retried = _sdk.get, _sdk.retried


def _get(path: str, version: str, span: tuple[int, int] | None = None, limit: int = -1) -> bytes:
    """Reads an object or a range of it; also retries if the answer breaks off.

    Args:
      path: path of the object.
      version: version that the object must have; empty for any.
      span: offsets of the first byte and after the last byte; None for the whole object.
      limit: largest size to read in bytes; -1 for none.

    Raises:
      ObjectTooLarge: if the object is larger than the limit.
    """
    bucket, name = split_path(path)
    wanted = {"IfMatch": f'"{version}"'} if version else {}
    if span:
        wanted["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    # A quick read of a whole object needs an MD5. Objects that were sent in parts or encrypted with another
    # key have other ETags; boto3 compares the checksums that S3 keeps of them.
    is_quick = span is not None or not version or is_md5(version)

    def send() -> bytes:
        client, reader = _client(), _sdk.quick_readers.get(bucket)
        data = reader.read(name, version, span=span, limit=limit) if reader and is_quick else None
        if data is None:
            answer = client.get_object(**_place(path), **wanted)
            if 0 <= limit < answer["ContentLength"]:
                answer["Body"].close()
                raise ObjectTooLarge(answer["ContentLength"])
            data = bytes(answer["Body"].read())
            if bucket not in _sdk.quick_readers:
                _sdk.quick_readers[bucket] = _quick_reader(client, bucket)
        return data

    return _retried("read", path, send)


def read_bytes(path: str, version: str = "", limit: int = -1) -> bytes:
    """Reads an object in one request; if a version is given, only that version.

    Raises:
      ObjectTooLarge: if the object has more bytes than the limit; -1 is none.
    """
    return _get(path, version, limit=limit)


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of an object in one request.

    Raises:
      EngineError: if the object changed since it was listed.
    """
    if length <= 0 or 0 <= size <= offset:
        return b""
    try:
        return _get(path, version, (offset, offset + length))
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of an object; None if there is no such object."""
    try:
        found = _retried("look for", path, lambda: _client().head_object(**_place(path)))
    except FileNotFoundError:
        return None
    return StoredObject(path, found["ContentLength"], found["ETag"].strip('"'))


def modified_at(path: str) -> float | None:
    """Returns when an object was last written, by the storage's clock in seconds since the epoch."""
    try:
        found = _retried("look for", path, lambda: _client().head_object(**_place(path)))
    except FileNotFoundError:
        return None
    return float(found["LastModified"].timestamp())


def exists(path: str) -> bool:
    """Returns whether an object is there."""
    return stat(path) is not None


def write_bytes(path: str, data: bytes) -> None:
    """Writes an object in one request: it appears complete or not at all."""
    place = {**_place(path), "ContentType": content_type(path)}
    _retried("write", path, lambda: _client().put_object(Body=data, **place), len(data))


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Reads an object and its ETag; None if there is none."""
    return read_latest(path, stat, read_bytes)


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Writes an object if its ETag is unchanged; with None, only if it does not exist."""
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": f'"{tag}"'}
    return _if_unchanged(
        "write", path, lambda: _client().put_object(**_place(path), Body=data, **_JSON, **condition)
    )


def remove_if_match(path: str, tag: str) -> bool:
    """Removes an object if its ETag is unchanged."""
    found = stat(path)  # for storages that do not support the condition
    if found is None or found.version != tag:
        return found is None
    done = _if_unchanged("remove", path, lambda: _client().delete_object(**_place(path), IfMatch=f'"{tag}"'))
    return done or stat(path) is None


def _if_unchanged(doing: str, path: str, send: Callable[[], object]) -> bool:
    """Sends a conditional request; returns whether the condition held."""

    def once() -> bool:
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
                    raise NoConditions(
                        f"Cannot {doing} {printable(path)}: this storage does not support conditional "
                        "requests, which keep two rebuilds apart; use one that does, such as Amazon S3 "
                        "or MinIO."
                    ) from error
                else:
                    raise
        return False

    return _retried(doing, path, once)


def move_into_place(temporary: str, path: str) -> None:
    """Uploads a finished local file to its final name, in parts if it is large, and removes it."""
    bucket, name = split_path(path)
    _retried(
        "write",
        path,
        lambda: _client().upload_file(temporary, bucket, name, Config=_transfers()),
        os.path.getsize(temporary),
    )
    os.unlink(temporary)


def open_local(path: str) -> AbstractContextManager[IO[bytes]]:
    """Opens a local copy of an object."""

    def chunks(version: str, offset: int) -> Iterable[bytes]:
        wanted = {"IfMatch": f'"{version}"', **({"Range": f"bytes={offset}-"} if offset else {})}
        found: Iterable[bytes] = (
            _client().get_object(**_place(path), **wanted)["Body"].iter_chunks(_COPY_BYTES)
        )
        return found

    return local_copy(path, stat, chunks, _retried)


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Returns the objects below a directory, or directly in it, a page at a time."""
    return objects_of(list_pages(directory, deep))


def list_pages(directory: str, deep: bool = True, after: str = "") -> Iterator[ListedPage]:
    """Yields pages of the objects below a directory, or directly in it, after a name."""
    bucket, name = split_path(directory)
    query = {"Bucket": bucket, "Prefix": folder_prefix(name), **({} if deep else {"Delimiter": "/"})}
    if after:
        query["StartAfter"] = after

    def page(token: str) -> ListedPage:
        asked = {**query, **({"ContinuationToken": token} if token else {})}
        return _retried("list", directory, lambda: _listed(bucket, _client().list_objects_v2(**asked)))

    return listed_pages(directory, page)


def _listed(bucket: str, answer: Any) -> ListedPage:
    """Returns the page in an answer.

    Raises:
      BadListing: if the answer is another document, in which boto3 finds no listing.
    """
    if "IsTruncated" not in answer:
        raise BadListing("this is not a listing")
    try:
        objects = [
            StoredObject(f"s3://{bucket}/{item['Key']}", item["Size"], item["ETag"].strip('"'))
            for item in answer.get("Contents", ())
        ]
        folders = [item["Prefix"] for item in answer.get("CommonPrefixes", ())]
        return ListedPage(objects, folders, answer["NextContinuationToken"] if answer["IsTruncated"] else "")
    except KeyError as error:
        raise BadListing("this listing is incomplete") from error


def copy(source: str, target: str) -> None:
    """Copies an object on the servers."""

    def send() -> None:
        _client().copy(_place(source), *split_path(target), Config=_transfers())

    found = stat(source)
    _retried("copy", source, send, found.size if found else 0)


def remove(path: str) -> None:
    """Removes an object if it exists."""
    _retried("remove", path, lambda: _client().delete_object(**_place(path)))
