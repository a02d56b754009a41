"""Google Cloud Storage through its own client: one request per object, many at once, with retries."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote
from urllib.request import getproxies

from shardwright.schemas import __version__
from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.missing_packages import needed_by
from shardwright.transforms.concurrency.pool import CONNECTIONS
from shardwright.transforms.concurrency.workers import job_options
from shardwright.transforms.storage.deadlines import (
    Contact,
    Operation,
    current,
    timed_pools,
    within,
)
from shardwright.transforms.storage.faults import changed, is_too_slow, no_answer_of_its_own, too_slow
from shardwright.transforms.storage.listings import BadListing, ListedPage, listed_pages
from shardwright.transforms.storage.objects import StoredObject, content_type

Result = TypeVar("Result")

#: Seconds for which a request with a transient error is retried.
RETRY_SECONDS = 180.0
#: The same for a storage that has not answered this process yet, because it may not exist.
FIRST_RETRY_SECONDS = 20.0
_RETRY_FIRST, _RETRY_MOST = 0.2, 10.0
#: Seconds to wait for a connection and for the next bytes; `deadlines` shortens both.
_TIMEOUT = (10, 60)
_RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
_LISTED_FIELDS = "items(name,size,generation,crc32c),prefixes,nextPageToken"
_CREDENTIALS_ADVICE = (
    "run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS, or read a public "
    "bucket with --no_auth"
)
#: Operations that do not need the object, so that a missing one means a missing bucket.
_NEEDS_A_BUCKET_ONLY = ("list", "write")
#: Prefix of the client before the storage's message.
_METHOD_AND_URL = re.compile(r"\A[A-Z]+ \S+: ")
_NO_BUCKET = "specified bucket does not exist"
#: Number of attempts to send or fetch an object whose bytes arrive damaged.
_ATTEMPTS = 3
#: Answers to bytes that do not match their checksum, and to lost upload sessions.
_UPLOAD_AGAIN = (400, 404, 410)
#: Number of bytes of a large upload that are in memory at once.
_CHUNK_BYTES = 16 << 20
#: Environment variables for other certificates, which requests reads only if it trusts the environment.
_CERTIFICATES = frozenset(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
_lock = threading.Lock()
_contact = Contact(lambda answered: RETRY_SECONDS if answered else FIRST_RETRY_SECONDS)


class _Access(NamedTuple):
    """The options that determine how to reach the storage."""

    emulator: str = ""
    no_auth: bool = False
    impersonate: str = ""


class _Made(NamedTuple):
    """The client of this process, and the options for which it was made."""

    client: Any
    access: _Access
    options: Any


_made = _Made(None, _Access(), None)


def _access(options: Any) -> _Access:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if options is None:
        return _Access(emulator)
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    google_options = options.view_as(GoogleCloudOptions)
    principals = google_options.impersonate_service_account or ""
    return _Access(emulator, bool(google_options.no_auth), principals)


def _credentials(access: _Access) -> Any:
    """Returns the credentials that Beam's options select.

    If there are none, Beam's GcsIO would search five times with pauses, 20 seconds in total.
    """
    import google.auth
    from google.auth import impersonated_credentials
    from google.auth.credentials import AnonymousCredentials

    if access.emulator or access.no_auth:
        return AnonymousCredentials()
    scope = "https://www.googleapis.com/auth/devstorage.read_write"
    found, _ = google.auth.default(scopes=[scope])
    if access.impersonate:
        *delegates, principal = access.impersonate.split(",")
        return impersonated_credentials.Credentials(
            source_credentials=found,
            target_principal=principal,
            delegates=delegates,
            target_scopes=[scope],
        )
    return found


def _client() -> Any:
    """Returns this process's client; threads share its connections, and other options make a new client."""
    global _made
    options = job_options()
    with _lock:
        same_host = _made.access.emulator == os.environ.get("STORAGE_EMULATOR_HOST", "")
        if _made.client is None or _made.options is not options or not same_host:
            access = _access(options)
            client = _made.client if _made.access == access else None
            if client is None:
                _contact.forget()
            _made = _Made(client or _make_client(access), access, options)
        return _made.client


def _make_client(access: _Access) -> Any:
    from google.api_core.client_info import ClientInfo
    from google.cloud import storage

    # Otherwise the client also requests the metadata of each bucket, which needs another permission.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = storage.Client(
        project=None,
        credentials=_credentials(access),
        client_info=ClientInfo(user_agent=f"shardwright/{__version__}"),
    )
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, _timed_adapter())
    # requests looks through the environment for proxies at every request: a sixth of what one costs.
    client._http.trust_env = bool(getproxies() or os.environ.keys() & _CERTIFICATES)
    return client


def _timed_adapter() -> Any:
    """Returns what holds the connections of a client and makes them keep to deadlines."""
    from requests.adapters import HTTPAdapter
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    pools = timed_pools(HTTPConnectionPool, HTTPSConnectionPool)

    class TimedAdapter(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(*args, **kwargs)
            manager.pool_classes_by_scheme = pools
            return manager

    return TimedAdapter(CONNECTIONS, CONNECTIONS)


def _retry() -> Any:
    """Returns the client's retry policy for the current operation of this thread."""
    from google.cloud.storage.retry import DEFAULT_RETRY
    from requests.exceptions import JSONDecodeError

    here = current() or Operation(_contact, "")
    pause = 0.0

    def goes_on(error: Exception) -> bool:
        nonlocal pause
        pause = min(max(2 * pause, _RETRY_FIRST), _RETRY_MOST)  # the longest pause that the client may choose
        again = isinstance(error, JSONDecodeError | BadListing) or DEFAULT_RETRY._predicate(error)
        return bool(again) and here.may_retry(error, pause)

    retry = DEFAULT_RETRY.with_delay(_RETRY_FIRST, _RETRY_MOST, 2.0)
    return retry.with_predicate(goes_on).with_timeout(max(here.seconds_left(), 0.0))


def split_path(path: str) -> tuple[str, str]:
    """Returns the bucket and the object name of a `gs://` path."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    return bucket, name


def _blob(path: str, generation: str = "") -> Any:
    bucket, name = split_path(path)
    return _client().bucket(bucket).blob(name, generation=int(generation) if generation else None)


@contextlib.contextmanager
def _translated_errors(doing: str, path: str, size: int = 0) -> Iterator[None]:
    """Makes the block one operation with a deadline, and turns what the client raises into one sentence.

    Missing or forbidden objects raise an OSError.

    Args:
      doing: name of the operation, for messages.
      path: path of the object or folder.
      size: number of bytes to send.
    """
    with needed_by("gs://"):
        from google.api_core.exceptions import (
            Forbidden,
            GoogleAPICallError,
            NotFound,
            RetryError,
            Unauthorized,
        )
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.cloud.storage.exceptions import DataCorruption
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

    shown = printable(path)
    here = Operation(_contact, path, size)
    try:
        with within(here):
            yield
        _contact.answered()
    except ShardwrightError:
        raise
    except NotFound as error:
        if doing in _NEEDS_A_BUCKET_ONLY or _NO_BUCKET in str(error):
            bucket = split_path(path)[0]
            raise EngineError(
                f"Cannot {doing} {shown}: there is no bucket {bucket}; check its name or make it first."
            ) from error
        raise FileNotFoundError(errno.ENOENT, "no such object", path) from error
    except Forbidden as error:
        raise PermissionError(errno.EACCES, "permission denied", path) from error
    except DataCorruption as error:
        raise EngineError(
            f"Cannot {doing} {shown}: its bytes do not match its checksum, again and again; "
            "check the network, then run again with --resume."
        ) from error
    except (
        RetryError, TransportError, RequestException, HTTPError, ConnectionError, TimeoutError, BadListing
    ) as error:  # fmt: skip
        here.give_up()
        raise _unreachable(doing, shown, here.fault or error) from error
    except (Unauthorized, GoogleAuthError) as error:
        raise EngineError(
            f"Cannot {doing} {shown}: there are no valid credentials for Google Cloud; {_CREDENTIALS_ADVICE}."
        ) from error
    except GoogleAPICallError as error:
        if error.code in _RETRIED_STATUSES:
            here.give_up()
            raise _unreachable(doing, shown, here.fault or error) from error
        said = " ".join(_METHOD_AND_URL.sub("", error.message).split())[:300].rstrip(".")
        raise EngineError(f"Cannot {doing} {shown}: Google Cloud Storage refuses it: {said}.") from error


def _unreachable(doing: str, shown: str, error: Exception) -> EngineError:
    from requests.exceptions import JSONDecodeError

    cause = getattr(error, "cause", None) or error.__cause__ or error
    status = getattr(cause, "code", None) or getattr(getattr(cause, "response", None), "status_code", None)
    if is_too_slow(error):
        return too_slow(doing, shown)
    if any(isinstance(item, JSONDecodeError | BadListing) for item in (error, cause)):
        return no_answer_of_its_own(doing, shown, "Google Cloud Storage")
    answer = f"answers with {int(status)}" if status else f"does not answer ({type(cause).__name__})"
    return EngineError(
        f"Cannot {doing} {shown}: Google Cloud Storage {answer} again and again; check the network, then "
        "run again with --resume."
    )


def _again(function: Callable[[], Result], statuses: Sequence[int] = ()) -> Result:
    """Calls a function again from the beginning if its bytes arrive damaged. The client does not do this."""
    from google.cloud.storage.exceptions import DataCorruption

    for _ in range(_ATTEMPTS - 1):
        try:
            return function()
        except Exception as error:
            if not isinstance(error, DataCorruption) and getattr(error, "code", None) not in statuses:
                raise
    return function()


def read_bytes(path: str, generation: str = "", checked: bool = True) -> bytes:
    """Reads an object in one request.

    Args:
      path: path of the object.
      generation: generation to read; empty for the newest.
      checked: whether to compare the bytes with the checksum in the answer.
    """
    with _translated_errors("read", path):
        return _again(lambda: _download(path, generation, checksum="crc32c" if checked else None))


def _download(path: str, generation: str, **options: Any) -> bytes:
    data = _blob(path, generation).download_as_bytes(
        raw_download=True,
        retry=_retry(),
        timeout=_TIMEOUT,
        single_shot_download=True,  # else 8 KiB at a time
        **options,
    )
    return bytes(data)


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of an object in one request.

    Raises:
      EngineError: if the object changed since it was listed.
    """
    from google.api_core.exceptions import RequestRangeNotSatisfiable

    if length <= 0 or 0 <= size <= offset:
        return b""
    try:
        with _translated_errors("read", path):
            return _download(path, version, checksum=None, start=offset, end=offset + length - 1)
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise
    except EngineError as error:
        if isinstance(error.__cause__, RequestRangeNotSatisfiable):
            return b""  # the object ends before
        raise


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of an object; None if there is no such object."""
    bucket, name = split_path(path)
    with _translated_errors("look for", path):
        blob = _client().bucket(bucket).get_blob(name, retry=_retry(), timeout=_TIMEOUT)
    return _stored(bucket, blob) if blob is not None else None


def modified_at(path: str) -> float | None:
    """Returns when an object was last written, by the storage's clock in seconds since the epoch."""
    bucket, name = split_path(path)
    with _translated_errors("look for", path):
        blob = _client().bucket(bucket).get_blob(name, retry=_retry(), timeout=_TIMEOUT)
    return None if blob is None or blob.updated is None else float(blob.updated.timestamp())


def _stored(bucket: str, blob: Any) -> StoredObject:
    return StoredObject(
        f"gs://{bucket}/{blob.name}", blob.size or 0, str(blob.generation or ""), blob.crc32c or ""
    )


def exists(path: str) -> bool:
    """Returns whether an object is there."""
    return stat(path) is not None


def write_bytes(path: str, data: bytes) -> None:
    """Writes an object in one upload: it appears complete or not at all."""
    _upload(
        path,
        len(data),
        lambda blob: blob.upload_from_string(
            data, content_type(path), checksum="crc32c", retry=_retry(), timeout=_TIMEOUT
        ),
    )


def move_into_place(temporary: str, path: str) -> None:
    """Uploads a finished local file to its final name and removes it."""
    _upload(
        path,
        os.path.getsize(temporary),
        lambda blob: blob.upload_from_filename(
            temporary, content_type(path), checksum="crc32c", retry=_retry(), timeout=_TIMEOUT
        ),
    )
    os.unlink(temporary)


def _upload(path: str, size: int, send: Callable[[Any], None]) -> None:
    """Uploads a file; starts again if it arrived damaged or its upload session was lost."""

    def upload() -> None:
        blob = _blob(path)
        blob.chunk_size = _CHUNK_BYTES
        send(blob)

    with _translated_errors("write", path, size):
        _again(upload, _UPLOAD_AGAIN)


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a local copy of an object."""
    with tempfile.TemporaryFile() as file:

        def fetch() -> None:
            file.seek(0)
            file.truncate()
            _blob(path).download_to_file(
                file, raw_download=True, checksum="crc32c", retry=_retry(), timeout=_TIMEOUT
            )

        with _translated_errors("read", path):
            _again(fetch)
        file.seek(0)
        yield file


def _pages(directory: str, delimiter: str = "") -> Iterator[ListedPage]:
    """Yields pages of the objects below a directory, or directly in it with `/` as the delimiter."""
    bucket, name = split_path(directory)
    query = {"prefix": _prefix(name), "delimiter": delimiter, "fields": _LISTED_FIELDS}
    query = {key: value for key, value in query.items() if value}

    def page(token: str) -> ListedPage:
        def ask() -> ListedPage:
            asked = {**query, **({"pageToken": token} if token else {})}
            return _listed(bucket, _client()._get_resource(place, asked, timeout=_TIMEOUT, retry=None))

        place = f"/b/{quote(bucket, safe='')}/o"
        with _translated_errors("list", directory):
            listed: ListedPage = _retry()(ask)()
            return listed

    return listed_pages(directory, page)


def _listed(bucket: str, answer: Any) -> ListedPage:
    """Returns the page in an answer.

    Raises:
      BadListing: if the answer is not a listing.
    """
    try:
        objects = [
            StoredObject(
                f"gs://{bucket}/{_text(item['name'])}",
                int(item.get("size") or 0),
                str(item.get("generation") or ""),
                _text(item.get("crc32c") or ""),
            )
            for item in answer.get("items") or ()
        ]
        folders = [_text(folder) for folder in answer.get("prefixes") or ()]
        token = _text(answer.get("nextPageToken") or "")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadListing("this is not a listing") from error
    if "error" in answer:
        raise BadListing("this is an error")
    return ListedPage(objects, folders, token)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Yields the objects below a directory, or directly in it, a page at a time."""
    for page in _pages(directory, "" if deep else "/"):
        for item in page.objects:
            if not item.path.endswith("/"):  # a marker that consoles make for an empty folder
                yield item


def list_folders(directory: str) -> list[str]:
    """Returns the names of the folders directly in a directory."""
    prefix = _prefix(split_path(directory)[1]) or ""
    folders = {folder for page in _pages(directory, "/") for folder in page.folders}
    return sorted(folder.removeprefix(prefix)[:-1] for folder in folders)


def _prefix(name: str) -> str | None:
    return f"{name}/" if name and not name.endswith("/") else name or None


def copy(source: str, target: str) -> None:
    """Copies an object on the servers."""
    blob, token = _blob(target), None
    while True:
        with _translated_errors("copy", source):  # a large object needs many requests
            token, _, _ = blob.rewrite(_blob(source), token=token, retry=_retry(), timeout=_TIMEOUT)
        if token is None:
            return


def remove(path: str) -> None:
    """Removes an object if it exists."""
    with contextlib.suppress(FileNotFoundError), _translated_errors("remove", path):
        _blob(path).delete(retry=_retry(), timeout=_TIMEOUT)
