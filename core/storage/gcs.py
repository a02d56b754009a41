"""Google Cloud Storage. A version is an object's generation.

Google's own client lists, writes, copies and removes objects. obstore reads the versions that were listed, at
a fraction of the processor time. Google's client reads what obstore cannot, and explains every refusal.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from http import HTTPStatus
from typing import IO, Any

import google.auth
import obstore.store
from google.api_core import exceptions
from google.api_core.client_info import ClientInfo
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from obstore.exceptions import BaseError
from requests.adapters import HTTPAdapter
from requests.exceptions import JSONDecodeError, RequestException, SSLError
from urllib3.exceptions import HTTPError

from shardwright.core.concurrency.thread_pool import CONNECTIONS
from shardwright.core.storage import faults, object_store, store
from shardwright.core.storage.faults import Answer, BadAnswer, Damaged, Fault, Service
from shardwright.schemas import __version__

#: Seconds to wait for a connection and for the next bytes.
_CONNECT_SECONDS, _SILENT_SECONDS = 10.0, 60.0
_LISTED_FIELDS = "items(name,size,generation,crc32c),prefixes,nextPageToken"
#: Answers to bytes that do not match their checksum, and to lost upload sessions.
_UPLOAD_AGAIN = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE))
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
#: What the client writes around the storage's message.
_AROUND_MESSAGE = re.compile(r"\A[A-Z]+ \S+: |:? ?\('Request failed.*", re.DOTALL)
_NO_BUCKET = "specified bucket does not exist"
_NO_PAYER = "requester pays bucket but no user project"


@dataclass(frozen=True)
class _Client:
    """How this process reaches the storage.

    Attributes:
      bucket: Returns a bucket of Google's own client, with the project that pays for requests to it.
      credentials: Credentials of google-auth.
      buckets: Buckets of obstore; None if it cannot do what the environment asks for.
    """

    bucket: Callable[[str], storage.Bucket]
    credentials: Any
    buckets: object_store.Buckets | None


class GcsStore(store.RemoteStore):
    """`gs://`."""

    environment = ("STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
    service = Service(
        name="Google Cloud Storage",
        kind="bucket",
        no_bucket=frozenset((_NO_BUCKET,)),
        bad_login=frozenset(),
        login_advice=(
            "run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS, or read a "
            "public bucket with --no_auth"
        ),
        certificates="REQUESTS_CA_BUNDLE",
    )

    def connect(self, options: Mapping[str, Any]) -> _Client:
        """Returns the clients for Beam's options."""
        credentials, user_project = _credentials(options)
        # Otherwise the client also requests the metadata of each bucket, which needs another permission.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        client = storage.Client(
            project=None,
            credentials=credentials,
            client_info=ClientInfo(user_agent=f"shardwright/{__version__}"),
        )
        for scheme in ("https://", "http://"):
            client._http.mount(scheme, HTTPAdapter(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS))
        payer = user_project or getattr(credentials, "quota_project_id", None)
        bucket = partial(client.bucket, user_project=user_project)
        return _Client(bucket, credentials, _buckets(client.api_endpoint, credentials, payer))

    def fault(self, doing: str, path: str, error: Exception) -> Fault | None:
        """Explains an error of Google's libraries or of obstore."""
        if isinstance(error, exceptions.RetryError) and isinstance(error.cause, Exception):
            return self.fault(doing, path, error.cause)
        if isinstance(error, DataCorruption | Damaged):
            return faults.damaged(doing, path)
        if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
            return self.service.no_credentials(doing, path)
        if isinstance(error, JSONDecodeError) or (
            isinstance(error, BaseError | BadAnswer) and object_store.is_foreign(error)
        ):
            return self.service.bad_answer(doing, path)
        if isinstance(error, SSLError) and "certificate" in str(error).lower():
            return self.service.bad_certificate(doing, path)
        if isinstance(error, exceptions.GoogleAPICallError):
            return self._refused(doing, path, error)
        if isinstance(error, BaseError):
            return self.service.fault(doing, path, object_store.answer_of(error))
        network = RequestException | HTTPError | TransportError | ConnectionError | TimeoutError
        if isinstance(error, network | InvalidResponse):
            response = getattr(error, "response", None)
            status = getattr(response, "status_code", 0)
            return self.service.fault(doing, path, Answer(status, text=type(error).__name__))
        return None

    def _refused(self, doing: str, path: str, error: Any) -> Fault:
        status = int(error.code or 0)
        text = " ".join(_AROUND_MESSAGE.sub("", str(error.message)).split())[:300]
        if status == HTTPStatus.UNAUTHORIZED:
            return self.service.no_credentials(doing, path)
        if _NO_PAYER in text:
            text = f"{text.rstrip('.')}; name the project that pays with --gcs_user_project"
        code = _NO_BUCKET if _NO_BUCKET in text else ""
        fault = self.service.fault(doing, path, Answer(status, code, text))
        if doing == "write" and status in _UPLOAD_AGAIN:
            return Fault(fault.error, faults.DAMAGED_RETRIES)
        return fault

    def _retry_settings(self, doing: str, path: str) -> dict[str, Any]:
        """Returns Google's settings for an upload or a copy, of which the client repeats single requests."""

        def goes_on(error: Exception) -> bool:
            fault = self.fault(doing, path, error)
            return fault is not None and fault.retries == math.inf and faults.current_operation().goes_on()

        return {**_once(), "retry": Retry(goes_on, faults.FIRST_PAUSE, faults.MAX_PAUSE, timeout=None)}

    def _blob(self, path: str, version: str = "") -> Any:
        bucket, name = self.split_path(path)
        return self.client().bucket(bucket).blob(name, generation=int(version) if version else None)

    def list_pages(self, directory: str, deep: bool, token: str) -> Iterator[store.ListedPage]:
        """Yields pages of a listing."""
        name, prefix = self.split_folder(directory)
        bucket = self.client().bucket(name)
        blobs = bucket.list_blobs(
            prefix=prefix or None,
            delimiter=None if deep else "/",
            fields=_LISTED_FIELDS,
            page_token=token or None,
            **_once(),
        )
        with _expected():
            for page in blobs.pages:
                objects = [_stored(blob) for blob in page]
                folders = [folder.removeprefix(prefix)[:-1] for folder in sorted(blobs.prefixes)]
                blobs.prefixes.clear()
                yield store.ListedPage(objects, folders, blobs.next_page_token or "")

    def read(self, path: str, version: str = "", limit: int = -1) -> bytes:
        """Reads an object. The bytes of a given version are left to the caller to compare."""
        if version:
            data = self._read_quickly(path, lambda reader: reader.whole(version, limit)[0])
            if data is not None:
                return data
        if 0 <= limit < self.stat(path, version).size:
            raise store.ObjectTooLarge
        data = self._blob(path, version).download_as_bytes(
            raw_download=True,
            checksum=None if version else "crc32c",
            single_shot_download=True,  # else 8 KiB at a time
            **_once(),
        )
        return bytes(data)

    def read_range(self, path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
        """Reads a range of an object."""
        data = self._read_quickly(path, lambda reader: reader.part(version, offset, length))
        if data is not None:
            return data
        try:
            data = self._blob(path, version).download_as_bytes(
                start=offset, end=offset + length - 1, raw_download=True, checksum=None, **_once()
            )
        except exceptions.RequestRangeNotSatisfiable:  # the object ends before
            return b""
        return bytes(data)

    def _read_quickly(self, path: str, read: Callable[[object_store.Reader], bytes]) -> bytes | None:
        """Reads through obstore; returns None if Google's own client must read, or explain a refusal.

        Args:
          path: Path of the object.
          read: Function that reads with a reader.
        """
        client: _Client = self.client()
        bucket, name = self.split_path(path)
        if client.buckets is None or object_store.was_forked() or not object_store.keeps_name(name):
            return None
        if not client.credentials.valid:
            with self._lock:  # one thread renews the token for all
                if not client.credentials.valid:
                    client.credentials.refresh(Request())
        try:
            return read(object_store.Reader(client.buckets.open(bucket), name, "version"))
        except store.ObjectTooLarge:
            raise
        except Exception as error:
            is_emulator = bool(os.environ.get("STORAGE_EMULATOR_HOST"))
            if object_store.is_refusal(error) or (is_emulator and object_store.is_foreign(error)):
                return None
            raise

    def write_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Writes an object if its generation is unchanged."""
        try:
            self.upload(io.BytesIO(data), path, "no-store", if_generation_match=int(version or 0))
        except exceptions.PreconditionFailed:
            return False
        return True

    def upload(self, file: IO[bytes], path: str, cache_control: str = "", **condition: int) -> None:
        """Writes an open file, in parts if it is large."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        blob = self._blob(path)
        blob.chunk_size = store.PART_BYTES
        if cache_control:
            blob.cache_control = cache_control
        blob.upload_from_file(
            _ReportedFile(file),
            size=size,
            content_type=store.content_type(path),
            checksum="crc32c",
            **self._retry_settings("write", path),
            **condition,
        )

    def copy(self, source: str, target: str) -> bool:
        """Copies an object; a large one needs many requests."""
        blob, token = self._blob(target), None
        while True:
            token, offset, _ = blob.rewrite(
                self._blob(source), token=token, **self._retry_settings("copy", source)
            )
            if token is None:
                return True
            faults.current_operation().reached(offset)

    def delete(self, path: str) -> None:
        """Removes an object."""
        self._blob(path).delete(**_once())

    def stat(self, path: str, version: str = "") -> store.StoredObject:
        """Returns the metadata of an object, of a version if given."""
        blob = self._blob(path, version)
        with _expected():
            blob.reload(**_once())
            return _stored(blob)


def _once() -> dict[str, Any]:
    """Returns Google's settings for one attempt within the deadline of this thread's operation."""
    left = max(faults.current_operation().seconds_left(), 0.1)
    return {"timeout": (min(_CONNECT_SECONDS, left), min(_SILENT_SECONDS, left)), "retry": None}


@contextlib.contextmanager
def _expected() -> Iterator[None]:
    """Turns what Google's client raises if a document has another form into `BadAnswer`."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, GoogleAuthError | RequestException):
            raise
        raise BadAnswer("this is another document") from error


def _stored(blob: Any) -> store.StoredObject:
    return store.StoredObject(
        f"gs://{blob.bucket.name}/{blob.name}",
        int(blob.size or 0),
        str(blob.generation or ""),
        blob.crc32c or "",
        blob.updated and blob.updated.timestamp(),
    )


class _ReportedFile:
    """A file that reports how far it was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        faults.current_operation().reached(self._file.tell())
        return data


def _credentials(options: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Returns the credentials of google-auth that Beam's options select, and the project that pays.

    Raises:
      google.auth.exceptions.DefaultCredentialsError: If there are none.
    """
    user_project = options.get("gcs_user_project")
    if options.get("no_auth") or os.environ.get("STORAGE_EMULATOR_HOST"):
        return AnonymousCredentials(), user_project
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    if impersonate := options.get("impersonate_service_account"):
        from google.auth import impersonated_credentials

        *delegates, principal = impersonate.split(",")
        credentials = impersonated_credentials.Credentials(
            source_credentials=credentials,
            target_principal=principal,
            delegates=delegates,
            target_scopes=[_SCOPE],
        )
    return credentials, user_project


def _buckets(url: str, credentials: Any, payer: str | None) -> object_store.Buckets | None:
    """Returns buckets of obstore; None if it cannot do what the environment asks for."""
    certificates = object_store.variable(*object_store.CERTIFICATES)
    if os.environ.get("GOOGLE_API_USE_CLIENT_CERTIFICATE", "").lower() == "true" or os.path.isdir(
        certificates
    ):
        return None

    def token() -> dict[str, Any]:
        expiry = credentials.expiry
        return {"token": credentials.token, "expires_at": expiry and expiry.replace(tzinfo=UTC)}

    is_anonymous = isinstance(credentials, AnonymousCredentials)
    access: dict[str, Any] = {"skip_signature": True} if is_anonymous else {"credential_provider": token}
    headers = {"Accept-Encoding": "gzip"}  # packed objects arrive as they are stored
    if payer:
        headers["x-goog-user-project"] = payer
    client_options = {
        **object_store.certificates(),
        "allow_http": url.startswith("http://"),
        "default_headers": headers,
        "user_agent": f"shardwright/{__version__}",
    }
    return object_store.Buckets(obstore.store.GCSStore, {"base_url": url, **access}, client_options)
