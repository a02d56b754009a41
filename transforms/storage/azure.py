"""Azure Blob Storage: one request per object, many at once, with retries.

Microsoft's own client sends all requests except most reads of images and ranges, which take the quick way of
`quick_reads`. A version is a blob's ETag, followed by `-` and its MD5 in hex digits if the storage keeps one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import IO, Any, NamedTuple
from urllib.request import getproxies

from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.missing_packages import needed_by
from shardwright.transforms.concurrency.pool import CONNECTIONS
from shardwright.transforms.storage.deadlines import timed_adapter
from shardwright.transforms.storage.faults import changed, no_answer_of_its_own
from shardwright.transforms.storage.listings import (
    BadListing,
    ListedPage,
    folder_prefix,
    listed_pages,
    objects_of,
)
from shardwright.transforms.storage.quick_reads import QuickReader, client_options, no_retries
from shardwright.transforms.storage.retrying_client import RetryingClient
from shardwright.transforms.storage.stored_object import ObjectTooLarge, StoredObject, content_type
from shardwright.transforms.storage.versioned_reads import local_copy, read_latest

#: Number of repetitions by the client itself, so that losing one block does not repeat a whole upload, and
#: the seconds before each.
_RETRIES_IN_CLIENT, _RETRY_IN_CLIENT = 2, 1
#: Seconds to wait for a connection and for the next bytes; `deadlines` shortens both.
_TIMEOUT = {"connection_timeout": 10, "read_timeout": 60}
#: Size of a block of a large blob in bytes. Smaller blobs are sent in one request.
_BLOCK_BYTES = 16 << 20
_HASH_BYTES = 1 << 20
_PAGE = 5000
_PAUSE = 0.2
_RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
#: Answers with 400 to bytes that were damaged on their way.
_RETRIED_CODES = frozenset(("Md5Mismatch", "Crc64Mismatch", "OperationTimedOut"))
_NO_CONTAINER = frozenset(("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"))
_NO_LOGIN = frozenset(("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"))
#: Operations that answer 403 if one blob may not be read. Elsewhere the whole container is meant.
_OF_ONE_BLOB = frozenset(("read", "look for"))
_CREDENTIALS_ADVICE = (
    "run `az login`, or set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
)
#: Environment variables, of Azure's command line and of obstore.
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
_ENDPOINT = ("AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_KEY = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_SCOPE = "https://storage.azure.com/.default"
_CERTIFICATES = frozenset(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
#: Names that Azure or its client changes: it turns `\\` into `/`, and resolves `.` and `..`.
_CHANGED_NAMES = re.compile(r"\\|(?:\A|/)\.\.?(?:/|\Z)")
#: Names that Microsoft advises against, because some programs change them: a dot at the end of a folder.
_UNSAFE_NAMES = re.compile(r"\.(?:/|\Z)|[\x00-\x1f\x7f]")
_ETAG_AND_MD5 = re.compile(r"(.*)-([0-9a-f]{32})")


class _CopyFailed(Exception):
    """A copy on the servers ended without success."""


class _Damaged(Exception):
    """Bytes that arrive differ from their MD5."""


class _BadAnswer(Exception):
    """An answer that does not come from the storage."""


class _Access(NamedTuple):
    """The options that determine how to reach the storage."""

    connection: str
    url: str
    identity: str

    @staticmethod
    def of(options: Any) -> _Access:
        """Returns what Beam's options and the environment say; Beam's options go first."""
        connection = url = identity = ""
        if options is not None:
            from apache_beam.options.pipeline_options import AzureOptions

            wanted = options.view_as(AzureOptions)
            connection, url = wanted.azure_connection_string or "", wanted.blob_service_endpoint or ""
            identity = wanted.azure_managed_identity_client_id or ""
        if not connection and not url:
            connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
            account = _variable(_ACCOUNT)
            url = _variable(_ENDPOINT) or (account and f"https://{account}.blob.core.windows.net")
        return _Access(connection, url, identity)


def _variable(names: tuple[str, ...]) -> str:
    return next(filter(None, (os.environ.get(name, "") for name in names)), "")


def _make_client(options: Any) -> Any:
    import requests
    from azure.core.pipeline.transport import RequestsTransport
    from azure.storage.blob import BlobServiceClient, LinearRetry

    # The client logs a warning for each attempt that fails; whether one matters is decided here.
    for name in ("azure.core", "azure.storage", "azure.identity"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.ERROR)
    access = _Access.of(options)
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, timed_adapter(CONNECTIONS))
    # requests looks through the environment for proxies at every request.
    session.trust_env = bool(getproxies() or os.environ.keys() & _CERTIFICATES)
    settings: dict[str, Any] = {
        "transport": RequestsTransport(session=session, session_owner=False, **_TIMEOUT),
        "retry_policy": LinearRetry(_RETRY_IN_CLIENT, _RETRIES_IN_CLIENT, random_jitter_range=0),
        "max_single_put_size": _BLOCK_BYTES,
        "max_block_size": _BLOCK_BYTES,
        **_TIMEOUT,
    }
    if access.connection:
        try:
            return BlobServiceClient.from_connection_string(access.connection, **settings)
        except ValueError as error:
            raise EngineError(
                "The connection string for az:// is malformed; copy it from `az storage account "
                "show-connection-string`."
            ) from error
    if not access.url:
        raise EngineError(
            "No storage account is named for az://; set AZURE_STORAGE_ACCOUNT or "
            "AZURE_STORAGE_CONNECTION_STRING, or give --blob_service_endpoint."
        )
    return BlobServiceClient(access.url, credential=_credential(access), **settings)


def _credential(access: _Access) -> Any:
    if "?" in access.url:  # with a shared access signature
        return None
    if key := _variable(_KEY):
        account = _variable(_ACCOUNT)
        return {"account_name": account, "account_key": key} if account else key
    if signature := _variable(_SAS):
        return signature.removeprefix("?")
    with needed_by("az:// without a key"):
        from azure.identity import DefaultAzureCredential

    chosen = {"managed_identity_client_id": access.identity} if access.identity else {}
    return DefaultAzureCredential(**chosen)


def _quick_reader(client: Any, container: str) -> QuickReader | None:
    """Returns a quick reader with the address and the credentials of the client; None if obstore cannot."""
    try:
        from obstore.store import AzureStore
    except ModuleNotFoundError:
        return None
    address, _, signature = client.url.partition("?")
    if address.startswith("https://") and os.environ.keys() & _CERTIFICATES:
        return None  # obstore would trust the system's certificates, too
    key = getattr(client.credential, "account_key", "")
    if key:
        access: dict[str, Any] = {"account_key": key, "credential_type": "access_key"}
    elif signature:
        access = {"sas_key": signature, "credential_type": "sas_token"}
    elif hasattr(client.credential, "get_token"):
        access = {"credential_provider": lambda: _token(client.credential)}
    else:
        return None
    store: Any = AzureStore
    try:
        made = store(
            container,
            # These take precedence over the environment, which obstore reads, too.
            account_name=client.account_name or "unknown",
            endpoint=address.rstrip("/"),
            use_emulator=False,
            skip_signature=False,
            client_options=client_options(address),
            retry_config=no_retries(),
            **access,
        )
    except Exception:  # obstore does not accept some variable of the environment
        return None
    return QuickReader(made)


def _token(credential: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    found = credential.get_token(_SCOPE)
    return {"token": found.token, "expires_at": datetime.fromtimestamp(found.expires_on, UTC)}


def split_path(path: str) -> tuple[str, str]:
    """Returns the container and the blob name of an `az://` path."""
    container, _, name = path.removeprefix("az://").partition("/")
    return container, name


def _blob(path: str) -> Any:
    """Returns the client of a blob.

    Raises:
      FileNotFoundError: if no blob can have this name.
    """
    container, name = split_path(path)
    if _CHANGED_NAMES.search(name):
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return _client().get_blob_client(container, name)


def _new_blob(path: str) -> Any:
    """Returns the client of a blob that will be written.

    Raises:
      UsageError: if Azure or programs for Azure would change its name.
    """
    name = split_path(path)[1]
    if _CHANGED_NAMES.search(name) or _UNSAFE_NAMES.search(name):
        raise UsageError(
            f"Cannot write {printable(path)}: Azure does not keep names with backslashes, control "
            "characters, or folders that end with a dot; choose another name."
        )
    return _blob(path)


def _version(etag: str, md5: Any) -> str:
    tag = etag.strip('"')
    return f"{tag}-{bytes(md5).hex()}" if md5 else tag


def _etag_and_md5(version: str) -> tuple[str, str]:
    """Returns the ETag and the MD5 in a version; the MD5 is empty if there is none."""
    found = _ETAG_AND_MD5.fullmatch(version)
    return (found[1], found[2]) if found else (version, "")


def _if_version(version: str) -> dict[str, Any]:
    """Returns the arguments for a request that holds only for this version; none without a version."""
    if not version:
        return {}
    from azure.core import MatchConditions

    return {"etag": f'"{_etag_and_md5(version)[0]}"', "match_condition": MatchConditions.IfNotModified}


@contextlib.contextmanager
def _translated_errors(doing: str, path: str) -> Iterator[None]:
    """Turns errors of the client into one sentence; missing or forbidden blobs raise an OSError."""
    with needed_by("az://"):
        from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
        from azure.storage.blob import BlobServiceClient  # noqa: F401

    shown = f"Cannot {doing} {printable(path)}"
    try:
        yield
    except ShardwrightError:
        raise
    except HttpResponseError as error:
        status, code = error.status_code, _code_of(error)
        if (
            code in _NO_LOGIN
            or status == 401
            or (isinstance(error, ClientAuthenticationError) and not status)
        ):
            raise EngineError(
                f"{shown}: Azure does not accept the credentials ({code or type(error).__name__}); "
                f"{_CREDENTIALS_ADVICE}."
            ) from error
        if code in _NO_CONTAINER or (status == 404 and doing in ("list", "write")):
            container = split_path(path)[0]
            raise EngineError(
                f"{shown}: there is no container {container}; check its name and that of the storage "
                "account, or make it first."
            ) from error
        if status == 404 or (status == 412 and doing in _OF_ONE_BLOB):
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from error
        if status == 403 and doing in _OF_ONE_BLOB:
            raise PermissionError(errno.EACCES, "permission denied", path) from error
        if status == 403:
            role = "Reader" if doing == "list" else "Contributor"
            raise EngineError(
                f"{shown}: permission denied ({code}); ask for the role `Storage Blob Data {role}` on the "
                "container, and check the firewall of the storage account."
            ) from error
        raise _failed(doing, path, error) from error
    except (AzureError, BadListing, _BadAnswer, _CopyFailed, _Damaged) as error:
        raise _failed(doing, path, error) from error


def _code_of(error: Any) -> str:
    """Returns Azure's name of an error; empty if it has none."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _failed(doing: str, path: str, error: Exception) -> EngineError:
    from azure.core.exceptions import DecodeError

    shown = printable(path)
    if isinstance(error, BadListing | DecodeError | _BadAnswer):
        return no_answer_of_its_own(doing, shown, "Azure")
    status = getattr(error, "status_code", None)
    if isinstance(error, _Damaged):
        text = "its bytes do not match its checksum, again and again"
    elif status in _RETRIED_STATUSES:
        text = f"Azure answers with {status} again and again"
    elif _is_transient(error):
        text = f"Azure does not answer ({type(error).__name__}) again and again"
    else:
        text = " ".join(str(getattr(error, "message", "") or error).split("\n")[0].split())[:300].rstrip(".")
    return EngineError(f"Cannot {doing} {shown}: {text}; check the network, then run again with --resume.")


def _is_transient(error: Exception) -> bool:
    """Returns whether the same request may succeed later."""
    from azure.core.exceptions import (
        ClientAuthenticationError,
        DecodeError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )

    if isinstance(error, HttpResponseError) and not isinstance(error, DecodeError):
        if error.status_code is None:  # the answer broke off
            return not isinstance(error, ClientAuthenticationError)
        return error.status_code in _RETRIED_STATUSES or _code_of(error) in _RETRIED_CODES
    return isinstance(
        error,
        ServiceRequestError
        | ServiceResponseError
        | DecodeError
        | BadListing
        | _BadAnswer
        | _CopyFailed
        | _Damaged,
    )


_sdk = RetryingClient(_make_client, _translated_errors, _is_transient)
_client, _retried = _sdk.get, _sdk.retried


def _get(path: str, version: str, span: tuple[int, int] | None = None, limit: int = -1) -> bytes:
    """Reads a blob or a range of it; also retries if the answer breaks off.

    Args:
      path: path of the blob.
      version: version that the blob must have; empty for any.
      span: offsets of the first byte and after the last byte; None for the whole blob.
      limit: largest size to read in bytes; -1 for none.

    Raises:
      ObjectTooLarge: if the blob is larger than the limit.
    """
    container, name = split_path(path)
    etag, md5 = _etag_and_md5(version)
    place = {"offset": span[0], "length": span[1] - span[0]} if span else {}

    def send() -> bytes:
        client, reader = _client(), _sdk.quick_readers.get(container)
        data = reader.read(name, etag, md5, span) if reader and version else None
        if data is not None:
            return data
        answer = _download(path, version, **place)
        if 0 <= limit < answer.size:  # only its first part has arrived
            raise ObjectTooLarge(answer.size)
        data = bytes(answer.readall())
        expected = answer.properties.content_settings.content_md5
        if span is None and expected and hashlib.md5(data, usedforsecurity=False).digest() != bytes(expected):
            raise _Damaged
        if container not in _sdk.quick_readers:
            _sdk.quick_readers[container] = _quick_reader(client, container)
        return data

    return _retried("read", path, send)


def _download(path: str, version: str, **place: int) -> Any:
    """Returns the client's reader of a blob, whose first part has arrived."""
    condition = _if_version(version)
    try:
        return _blob(path).download_blob(**place, **condition, max_concurrency=1, decompress=False)
    except ValueError as error:  # the answer lacks a header that each answer of Azure has
        raise _BadAnswer(str(error)) from error


def read_bytes(path: str, version: str = "", limit: int = -1) -> bytes:
    """Reads a blob in one request; if a version is given, only that version.

    Raises:
      ObjectTooLarge: if the blob has more bytes than the limit; -1 is none.
    """
    return _get(path, version, limit=limit)


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of a blob in one request.

    Raises:
      EngineError: if the blob changed since it was listed.
    """
    if length <= 0 or 0 <= size <= offset:
        return b""
    try:
        return _get(path, version, (offset, offset + length))
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise
    except EngineError as error:
        if getattr(error.__cause__, "status_code", None) == 416:
            return b""  # the blob ends before
        raise


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of a blob; None if there is no such blob."""
    found = _properties(path)
    if found is None or _is_folder(found):
        return None
    return StoredObject(path, found.size, _version(found.etag, found.content_settings.content_md5))


def _properties(path: str) -> Any:
    try:
        return _retried("look for", path, lambda: _blob(path).get_blob_properties())
    except FileNotFoundError:
        return None


def _is_folder(blob: Any) -> bool:
    """Returns whether a blob is a folder of an account with a hierarchical namespace."""
    return str((blob.metadata or {}).get("hdi_isfolder", "")).lower() == "true"


def modified_at(path: str) -> float | None:
    """Returns when a blob was last written, by the storage's clock in seconds since the epoch."""
    found = _properties(path)
    return None if found is None else float(found.last_modified.timestamp())


def exists(path: str) -> bool:
    """Returns whether a blob is there."""
    return stat(path) is not None


def _settings(path: str, md5: bytes, cache_control: str | None = None) -> Any:
    from azure.storage.blob import ContentSettings

    return ContentSettings(
        content_type=content_type(path), content_md5=bytearray(md5), cache_control=cache_control
    )


def write_bytes(path: str, data: bytes) -> None:
    """Writes a blob in one upload: it appears complete or not at all."""
    md5 = hashlib.md5(data, usedforsecurity=False).digest()

    def send() -> None:
        _new_blob(path).upload_blob(
            data, overwrite=True, validate_content=True, content_settings=_settings(path, md5)
        )

    _retried("write", path, send, len(data))


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Reads a blob and its version; None if there is none."""
    return read_latest(path, stat, read_bytes)


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Writes a blob if its version is unchanged; with None, only if it does not exist."""
    condition = {"overwrite": False} if tag is None else {"overwrite": True, **_if_version(tag)}
    md5 = hashlib.md5(data, usedforsecurity=False).digest()

    def send() -> None:
        _new_blob(path).upload_blob(
            data, validate_content=True, content_settings=_settings(path, md5, "no-store"), **condition
        )

    return _if_unchanged("write", path, send)


def remove_if_match(path: str, tag: str) -> bool:
    """Removes a blob if its version is unchanged."""
    done = _if_unchanged("remove", path, lambda: _blob(path).delete_blob(**_if_version(tag)))
    return done or stat(path) is None


def _if_unchanged(doing: str, path: str, send: Callable[[], object]) -> bool:
    """Sends a conditional request; returns whether the condition held."""

    def once() -> bool:
        from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

        try:
            send()
        except (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError) as error:
            if _code_of(error) in ("BlobAlreadyExists", "ConditionNotMet", "BlobNotFound"):
                return False
            raise
        return True

    return _retried(doing, path, once)


def move_into_place(temporary: str, path: str) -> None:
    """Uploads a finished local file to its final name, in blocks if it is large, and removes it."""
    digest, size = hashlib.md5(usedforsecurity=False), os.path.getsize(temporary)
    with open(temporary, "rb") as file:
        while chunk := file.read(_HASH_BYTES):
            digest.update(chunk)

    def send() -> None:
        with open(temporary, "rb") as file:
            _new_blob(path).upload_blob(
                file,
                length=size,
                overwrite=True,
                validate_content=True,
                max_concurrency=1,
                content_settings=_settings(path, digest.digest()),
            )

    _retried("write", path, send, size)
    os.unlink(temporary)


def open_local(path: str) -> AbstractContextManager[IO[bytes]]:
    """Opens a local copy of a blob."""

    def chunks(version: str, offset: int) -> Iterable[bytes]:
        found: Iterable[bytes] = _download(path, version, **({"offset": offset} if offset else {})).chunks()
        return found

    return local_copy(path, stat, chunks, _retried)


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Returns the blobs below a directory, or directly in it, a page at a time."""
    return objects_of(list_pages(directory, deep))


def list_pages(directory: str, deep: bool = True) -> Iterator[ListedPage]:
    """Yields pages of the blobs below a directory, or directly in it."""
    container, name = split_path(directory)
    prefix = folder_prefix(name)

    def page(token: str) -> ListedPage:
        return _retried("list", directory, lambda: _listed(container, prefix, deep, token))

    return listed_pages(directory, page)


def _listed(container: str, prefix: str, deep: bool, token: str) -> ListedPage:
    """Returns a page of a listing.

    Raises:
      BadListing: if the answer is another document, in which the client finds no listing.
    """
    from azure.storage.blob import BlobPrefix

    client = _client().get_container_client(container)
    asked: dict[str, Any] = {
        "name_starts_with": prefix or None,
        "include": ["metadata"],  # shows which blobs are folders
        "results_per_page": _PAGE,
        "raw_response_hook": _check_listing,
    }
    found = client.list_blobs(**asked) if deep else client.walk_blobs(**asked, delimiter="/")
    pages = found.by_page(token or None)
    try:
        items = list(next(pages, ()))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadListing("this listing is incomplete") from error
    objects = [
        StoredObject(
            f"az://{container}/{item.name}", item.size, _version(item.etag, item.content_settings.content_md5)
        )
        for item in items
        if not isinstance(item, BlobPrefix) and not _is_folder(item)
    ]
    folders = [item.name for item in items if isinstance(item, BlobPrefix)]
    return ListedPage(objects, folders, pages.continuation_token or "")


def _check_listing(response: Any) -> None:
    """Checks that an answer is a whole listing, because the client takes any document for an empty one."""
    if response.http_response.status_code == 200:
        body = response.http_response.body().rstrip()
        if b"<EnumerationResults" not in body[:1000] or not body.endswith(b"</EnumerationResults>"):
            raise BadListing("this is not a listing")


def copy(source: str, target: str) -> None:
    """Copies a blob on the servers."""

    def send() -> None:
        blob = _new_blob(target)
        status = blob.start_copy_from_url(_blob(source).url)["copy_status"]
        while status == "pending":
            time.sleep(_PAUSE)
            status = blob.get_blob_properties().copy.status
        if status != "success":
            raise _CopyFailed(f"the copy is {status}")

    found = stat(source)
    _retried("copy", source, send, found.size if found else 0)


def remove(path: str) -> None:
    """Removes a blob if it exists."""
    with contextlib.suppress(FileNotFoundError):
        _retried("remove", path, lambda: _blob(path).delete_blob())
