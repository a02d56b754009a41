"""Google Cloud Storage: one request per object, many at once, with retries.

`gcs_media` reads objects, their metadata and listings. Google's own client does everything else. Its import
takes long, so that it is only imported when it is used.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
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
    timed_adapter,
    within,
)
from shardwright.transforms.storage.faults import changed, is_too_slow, no_answer_of_its_own, too_slow
from shardwright.transforms.storage.gcs_access import (
    GcsAccess,
    access_from,
    credentials_for,
    emulator_host,
    endpoint,
    needs_client_certificate,
)
from shardwright.transforms.storage.gcs_media import (
    TRANSIENT_STATUSES,
    Damaged,
    Download,
    MediaReader,
    Refused,
    SentRequest,
    Unreachable,
    is_available,
    object_place,
)
from shardwright.transforms.storage.listings import (
    BadListing,
    ListedPage,
    folder_prefix,
    listed_pages,
    objects_of,
)
from shardwright.transforms.storage.stored_object import ObjectTooLarge, StoredObject, content_type

Result = TypeVar("Result")

#: Seconds for which a request with a transient error is retried.
RETRY_SECONDS = 180.0
#: The same for a storage that has not answered this process yet, because it may not exist.
FIRST_RETRY_SECONDS = 20.0
_RETRY_FIRST, _RETRY_MAX = 0.2, 10.0
#: Seconds to wait for a connection and for the next bytes; `deadlines` shortens both.
_TIMEOUT = (10, 60)
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
_NO_PAYER = "requester pays bucket but no user project"
#: Number of attempts to send or fetch an object whose bytes arrive damaged.
_ATTEMPTS = 3
#: Answers to bytes that do not match their checksum, and to lost upload sessions.
_UPLOAD_AGAIN = (400, 404, 410)
#: Number of bytes of a large upload that are in memory at once.
_CHUNK_BYTES = 16 << 20
#: Environment variables for other certificates, which requests reads only if it trusts the environment.
_CERTIFICATES = frozenset(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
_lock = threading.Lock()
_ahead = threading.local()
_contact = Contact(lambda answered: RETRY_SECONDS if answered else FIRST_RETRY_SECONDS)


class _Made(NamedTuple):
    """The clients with which this process reaches the storage, and the options for which they were made.

    Attributes:
      access: how to reach the storage.
      options: Beam's options that say so.
      credentials: credentials of google-auth.
      media: reads objects; None if Google's own client does.
      client: list of Google's own client, or empty before its first use, because its import takes long.
    """

    access: GcsAccess
    options: Any
    credentials: Any
    media: MediaReader | None
    client: list[Any]


_made: _Made | None = None


def _access() -> _Made:
    """Returns how this process reaches the storage; all threads share it, other options make another."""
    global _made
    options = job_options()
    with _lock:
        known = _made
        same_host = known is not None and known.access.emulator == emulator_host()
        if known is None or known.options is not options or not same_host:
            access = access_from(options)
            if known is not None and known.access == access:
                known = known._replace(options=options)
            else:
                _contact.forget()
                known = _make_access(access, options)
            _made = known
        return known


def _make_access(access: GcsAccess, options: Any) -> _Made:
    credentials = credentials_for(access)
    media = None
    if can_read_ahead():
        media = MediaReader(endpoint(access), credentials, access.user_project)
    return _Made(access, options, credentials, media, [])


def can_read_ahead() -> bool:
    """Returns whether `gcs_media` reads, and not Google's own client."""
    return is_available() and not needs_client_certificate()


def _client() -> Any:
    """Returns Google's own client; threads share its connections."""
    made = _access()
    with _lock:
        if not made.client:
            made.client.append(_make_client(made.credentials))
        return made.client[0]


def _bucket(name: str) -> Any:
    """Returns a bucket of the client; requests to it are charged to the project that the options name."""
    return _client().bucket(name, user_project=_access().access.user_project or None)


def _make_client(credentials: Any) -> Any:
    from google.api_core.client_info import ClientInfo
    from google.cloud import storage

    # Otherwise the client also requests the metadata of each bucket, which needs another permission.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = storage.Client(
        project=None,
        credentials=credentials,
        client_info=ClientInfo(user_agent=f"shardwright/{__version__}"),
    )
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, timed_adapter(CONNECTIONS))
    # requests looks through the environment for proxies at every request: a sixth of what one costs.
    client._http.trust_env = bool(getproxies() or os.environ.keys() & _CERTIFICATES)
    return client


def _retry() -> Any:
    """Returns the client's retry policy for the current operation of this thread."""
    from google.cloud.storage.retry import DEFAULT_RETRY
    from requests.exceptions import JSONDecodeError

    here = current() or Operation(_contact, "")
    pause = 0.0

    def goes_on(error: Exception) -> bool:
        nonlocal pause
        pause = min(max(2 * pause, _RETRY_FIRST), _RETRY_MAX)  # the longest pause that the client may choose
        again = isinstance(error, JSONDecodeError | BadListing) or DEFAULT_RETRY._predicate(error)
        return bool(again) and here.may_retry(error, pause)

    retry = DEFAULT_RETRY.with_delay(_RETRY_FIRST, _RETRY_MAX, 2.0)
    return retry.with_predicate(goes_on).with_timeout(max(here.seconds_left(), 0.0))


def split_path(path: str) -> tuple[str, str]:
    """Returns the bucket and the object name of a `gs://` path."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    return bucket, name


def _blob(path: str, generation: str = "") -> Any:
    bucket, name = split_path(path)
    return _bucket(bucket).blob(name, generation=int(generation) if generation else None)


@contextlib.contextmanager
def _translated_errors(doing: str, path: str, size: int = 0) -> Iterator[Operation]:
    """Makes the block one operation with a deadline, and turns what the clients raise into one sentence.

    Missing or forbidden objects raise an OSError.

    Args:
      doing: name of the operation, for messages.
      path: path of the object or folder.
      size: number of bytes to send.
    """
    here = Operation(_contact, path, size)
    try:
        with needed_by("gs://"), within(here):
            yield here
        _contact.answered()
    except (ShardwrightError, ObjectTooLarge):
        raise
    except (Refused, Unreachable, Damaged) as error:
        raise _reading_error(doing, path, here, error) from error
    except Exception as error:
        found = _client_error(doing, path, here, error)
        if found is None:
            raise
        raise found from error


def _reading_error(
    doing: str, path: str, here: Operation, error: Refused | Unreachable | Damaged
) -> Exception:
    """Translates an error of the media reader for the caller."""
    shown = printable(path)
    if isinstance(error, Damaged):
        return _damaged(doing, shown)
    if error.is_transient:
        here.give_up()
        return _unreachable(doing, shown, here.fault or error)
    if isinstance(error, Unreachable):
        return EngineError(
            f"Cannot {doing} {shown}: the certificate of the server cannot be checked ({error}); set "
            "REQUESTS_CA_BUNDLE to the file with the certificates that your network uses."
        )
    return _refusal(doing, path, error.status, error.message)


def _refusal(doing: str, path: str, status: int, message: str) -> Exception:
    """Translates a refusal of the storage for the caller."""
    shown = printable(path)
    if status == HTTPStatus.NOT_FOUND:
        if doing in _NEEDS_A_BUCKET_ONLY or _NO_BUCKET in message:
            bucket = split_path(path)[0]
            return EngineError(
                f"Cannot {doing} {shown}: there is no bucket {bucket}; check its name or make it first."
            )
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status == HTTPStatus.FORBIDDEN:
        return PermissionError(errno.EACCES, "permission denied", path)
    if status == HTTPStatus.UNAUTHORIZED:
        return _no_credentials(doing, shown)
    detail = " ".join(_METHOD_AND_URL.sub("", message).split())[:300].rstrip(".")
    advice = "; name the project that pays with --gcs_user_project" if _NO_PAYER in detail else ""
    return EngineError(f"Cannot {doing} {shown}: Google Cloud Storage refuses it: {detail}{advice}.")


def _no_credentials(doing: str, shown: str) -> EngineError:
    return EngineError(
        f"Cannot {doing} {shown}: there are no valid credentials for Google Cloud; {_CREDENTIALS_ADVICE}."
    )


def _damaged(doing: str, shown: str) -> EngineError:
    return EngineError(
        f"Cannot {doing} {shown}: its bytes do not match its checksum, again and again; "
        "check the network, then run again with --resume."
    )


def _client_error(doing: str, path: str, here: Operation, error: Exception) -> Exception | None:
    """Translates an error of Google's libraries for the caller; None for any other error."""
    from google.auth.exceptions import GoogleAuthError, TransportError

    shown = printable(path)
    if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
        return _no_credentials(doing, shown)
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    if isinstance(error, DataCorruption):
        return _damaged(doing, shown)
    refusal: Any = error if isinstance(error, GoogleAPICallError) else None
    is_unreachable = isinstance(
        error,
        RetryError | TransportError | RequestException | HTTPError | ConnectionError | TimeoutError
        | BadListing,
    )  # fmt: skip
    if is_unreachable or (refusal is not None and refusal.code in TRANSIENT_STATUSES):
        here.give_up()
        return _unreachable(doing, shown, here.fault or error)
    return None if refusal is None else _refusal(doing, path, int(refusal.code or 0), refusal.message)


def _unreachable(doing: str, shown: str, error: Exception) -> EngineError:
    cause = getattr(error, "cause", None) or error.__cause__ or error
    if is_too_slow(error):
        return too_slow(doing, shown)
    if isinstance(error, Refused):
        answer = f"answers with {error.status}"
    elif isinstance(error, Unreachable):
        answer = f"does not answer ({error})"
    else:
        from requests.exceptions import JSONDecodeError

        if any(isinstance(item, JSONDecodeError | BadListing) for item in (error, cause)):
            return no_answer_of_its_own(doing, shown, "Google Cloud Storage")
        response = getattr(cause, "response", None)
        status = getattr(cause, "code", None) or getattr(response, "status_code", None)
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


def read_bytes(path: str, generation: str = "", checked: bool = True, limit: int = -1) -> bytes:
    """Reads an object in one request.

    Args:
      path: path of the object.
      generation: generation to read; empty for the newest.
      checked: whether to compare the bytes with the checksum in the answer.
      limit: largest size to read in bytes; -1 for none.

    Raises:
      ObjectTooLarge: if the object is larger than the limit.
    """
    with _translated_errors("read", path) as here:
        media = _access().media
        if media is not None:
            sent = _sent_ahead(media, path, generation, checked, limit)
            download = Download.of_object(path, generation, checked=checked, limit=limit)
            return _fetched(media, sent.download if sent else download, here, _as_it_is, sent)
        checksum = "crc32c" if checked else None
        if limit >= 0:
            return _again(lambda: _download_at_most(path, limit, checksum=checksum))
        return _again(lambda: _download(path, generation, checksum=checksum))


@contextlib.contextmanager
def reading_ahead(objects: Sequence[tuple[str, str]], limit: int = -1) -> Iterator[None]:
    """Requests objects that this thread reads in the block, so that many answers are on their way at once.

    Only the first attempt to read an object is made ahead. Whatever keeps it from being made, or fails, comes
    up when the object is read.

    Args:
      objects: paths and generations, which are empty for the newest; only those are compared with their
        checksums.
      limit: limit of the reads of the newest generation; -1 for none.
    """
    try:
        media = _access().media
    except Exception:  # the first read says so
        media = None
    if media is None:
        yield
        return
    downloads = {
        (path, generation): Download.of_object(
            path, generation, checked=not generation, limit=-1 if generation else limit
        )
        for path, generation in objects
    }
    before = getattr(_ahead, "sent", None)
    sent = _ahead.sent = dict(zip(downloads, media.begin_ahead([*downloads.values()])))
    try:
        yield
    finally:
        _ahead.sent = before
        media.cancel([*sent.values()])


def _sent_ahead(
    media: MediaReader, path: str, generation: str, checked: bool, limit: int
) -> SentRequest | None:
    """Takes the request for an object that was sent ahead; None if there is none."""
    ahead: dict[tuple[str, str], SentRequest] | None = getattr(_ahead, "sent", None)
    found = ahead.get((path, generation)) if ahead else None
    if ahead is None or found is None or not media.is_usable(found):
        return None
    if (checked and not found.download.is_checked) or found.download.limit != limit:
        return None
    del ahead[path, generation]
    return found


def _fetched(
    media: MediaReader,
    download: Download,
    here: Operation,
    parse: Callable[[bytes], Result],
    sent: SentRequest | None = None,
) -> Result:
    """Fetches a download: again after transient errors, with the pauses of Google's own client.

    Args:
      media: sends the requests.
      download: what to fetch.
      here: operation of this thread.
      parse: function of the content that returns the result, or raises BadListing.
      sent: the first request, if it was sent ahead.
    """
    pause, attempts = 0.0, 1
    while True:
        try:
            first, sent = sent, None
            media.fetch(download, first)
            return parse(download.content())
        except Damaged:
            attempts += 1
            if attempts > _ATTEMPTS:
                raise
            continue
        except (Refused, Unreachable, BadListing) as error:
            if not isinstance(error, BadListing) and not error.is_transient:
                raise
            pause = min(max(2 * pause, _RETRY_FIRST), _RETRY_MAX)
            if not here.may_retry(error, pause):
                raise
            if isinstance(error, BadListing):
                download.restart()
        time.sleep(random.uniform(0, pause))


def _as_it_is(content: bytes) -> bytes:
    return content


def _document(
    doing: str, path: str, place: str, query: Mapping[str, str], parse: Callable[[Any], Result]
) -> Result:
    """Reads a document of the JSON API.

    Args:
      doing: name of the operation, for messages.
      path: path of the object or folder.
      place: place of the document in the API.
      query: query of the request.
      parse: function of the decoded JSON that returns the result, or raises BadListing.
    """

    def decoded(content: bytes) -> Result:
        try:
            value = json.loads(content)
        except ValueError as error:
            raise BadListing("this is not JSON") from error
        return parse(value)

    with _translated_errors(doing, path) as here:
        made = _access()
        if made.media is not None:
            return _fetched(made.media, Download.of_document(place, query), here, decoded)
        payer = {"userProject": made.access.user_project} if made.access.user_project else {}

        def ask() -> Result:
            answer = _client()._get_resource(place, {**query, **payer}, timeout=_TIMEOUT, retry=None)
            return parse(answer)

        found: Result = _retry()(ask)()
        return found


def _download(path: str, generation: str, **options: Any) -> bytes:
    """Reads an object with Google's own client."""
    data = _blob(path, generation).download_as_bytes(
        raw_download=True,
        retry=_retry(),
        timeout=_TIMEOUT,
        single_shot_download=True,  # else 8 KiB at a time
        **options,
    )
    return bytes(data)


class _LimitedBytes(io.BytesIO):
    """A file in memory that refuses more bytes than a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > self._limit:
            raise ObjectTooLarge
        return super().write(data)


def _download_at_most(path: str, limit: int, **options: Any) -> bytes:
    """Reads an object with Google's own client, in small pieces, unless it is larger than a limit."""
    file = _LimitedBytes(limit)
    _blob(path).download_to_file(file, raw_download=True, retry=_retry(), timeout=_TIMEOUT, **options)
    return file.getvalue()


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of an object in one request.

    Raises:
      EngineError: if the object changed since it was listed.
    """
    if length <= 0 or 0 <= size <= offset:
        return b""
    try:
        with _translated_errors("read", path) as here:
            media = _access().media
            if media is not None:
                download = Download.of_object(path, version, first=offset, length=length)
                return _fetched(media, download, here, _as_it_is)
            return _download(path, version, checksum=None, start=offset, end=offset + length - 1)
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise
    except EngineError as error:
        cause = error.__cause__
        status = cause.status if isinstance(cause, Refused) else getattr(cause, "code", 0)
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""  # the object ends before
        raise


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of an object; None if there is no such object."""
    bucket, _ = split_path(path)
    return _metadata(path, lambda item: _stored(bucket, item))


def modified_at(path: str) -> float | None:
    """Returns when an object was last written, by the storage's clock in seconds since the epoch."""
    return _metadata(path, _time_of)


def _metadata(path: str, parse: Callable[[Any], Result]) -> Result | None:
    """Returns what a function finds in the metadata of an object; None if there is no such object."""
    try:
        return _document("look for", path, object_place(path), {"projection": "noAcl"}, _guarded(parse))
    except FileNotFoundError:
        return None
    except EngineError as error:
        cause: Any = error.__cause__
        if HTTPStatus.NOT_FOUND in (getattr(cause, "status", 0), getattr(cause, "code", 0)):
            return None  # there is no such bucket
        raise


def _guarded(parse: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Returns a function that raises `BadListing` for any document that `parse` does not understand."""

    def parsed(answer: Any) -> Result:
        try:
            if "error" in answer:
                raise BadListing("this is an error")
            return parse(answer)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadListing("this is not the document") from error

    return parsed


def _stored(bucket: str, item: Any) -> StoredObject:
    return StoredObject(
        f"gs://{bucket}/{_text(item['name'])}",
        int(item.get("size") or 0),
        str(item.get("generation") or ""),
        _text(item.get("crc32c") or ""),
    )


def _time_of(item: Any) -> float | None:
    updated = item.get("updated")
    return datetime.fromisoformat(updated.replace("Z", "+00:00")).timestamp() if updated else None


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

        with _translated_errors("read", path) as here:
            media = _access().media
            if media is not None:
                _fetched(media, Download.of_object(path, checked=True, file=file), here, _as_it_is)
            else:
                _again(fetch)
        file.seek(0)
        yield file


def list_pages(directory: str, deep: bool = True, after: str = "") -> Iterator[ListedPage]:
    """Yields pages of the objects below a directory, or directly in it, beginning at a name."""
    bucket, name = split_path(directory)
    place = f"/b/{quote(bucket, safe='')}/o"
    query = {
        "prefix": folder_prefix(name),
        "delimiter": "" if deep else "/",
        "startOffset": after,
        "fields": _LISTED_FIELDS,
    }

    def page(token: str) -> ListedPage:
        asked = {key: value for key, value in {**query, "pageToken": token}.items() if value}
        return _document("list", directory, place, asked, _guarded(lambda answer: _listed(bucket, answer)))

    return listed_pages(directory, page)


def _listed(bucket: str, answer: Any) -> ListedPage:
    """Returns the page in an answer."""
    return ListedPage(
        [_stored(bucket, item) for item in answer.get("items") or ()],
        [_text(folder) for folder in answer.get("prefixes") or ()],
        _text(answer.get("nextPageToken") or ""),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Returns the objects below a directory, or directly in it, a page at a time."""
    return objects_of(list_pages(directory, deep))


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
