"""Reads, writes and lists objects through obstore: all of `s3://` and `az://`, and most reads of `gs://`.

A version is an object's ETag. obstore's threads do not exist in a child of `fork`, so such a child may not
use it. Names keep to obstore's rules: no empty folders, no `.` and `..`, no control characters.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, ClassVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError

from shardwright.core.storage import faults
from shardwright.core.storage.store import (
    PART_BYTES,
    ListedPage,
    NoConditions,
    ObjectTooLarge,
    RemoteStore,
    StoredObject,
    content_type,
)
from shardwright.schemas.errors import EngineError, UsageError

#: Timeouts of a request in seconds; an attempt gets the longest one that fits into its deadline.
_TIMEOUTS = (170.0, 55.0, 18.0, 4.5, 0.9)
_CONNECT_SECONDS, _SILENT_SECONDS = 10.0, 60.0
#: Repetitions of one part by obstore itself, so that losing it does not repeat a whole upload.
UPLOAD_RETRIES = 3
#: Largest object that S3 copies in one request.
_COPY_BYTES = 5 << 30
PAGE = 1000
#: Seconds for one level of a folder, which obstore lists as a whole.
_LEVEL_SECONDS = 600.0
#: Names that obstore changes or refuses.
_OTHER_NAMES = re.compile(r"\A/|//|/\Z|\A\Z|(?:\A|/)\.\.?(?:/|\Z)|[\x00-\x1f\x7f\ud800-\udfff]")
_STATUS, _CODE = re.compile(r"status code: (\d{3})"), re.compile(r"<Code>(\w+)</Code>")
_MD5 = re.compile(r"[0-9a-f]{32}")
#: What obstore says of a range behind the end if the storage does not refuse it.
_BEHIND_THE_END = "Wanted range starting at"
#: What obstore says of an answer that is not from the storage.
_FOREIGN = re.compile(r"Header missing|header|non-partial|invalid list response|Requested \d")
_RANGE_NOT_SATISFIABLE, _NOT_IMPLEMENTED, _PRECONDITION_FAILED = 416, 501, 412
#: Name of an exception of obstore -> HTTP status, which its text may lack. That an object exists already is a
#: condition that failed.
_STATUS_OF = {
    "FileNotFoundError": 404,
    "PermissionDeniedError": 403,
    "UnauthenticatedError": 401,
    "PreconditionError": _PRECONDITION_FAILED,
    "AlreadyExistsError": _PRECONDITION_FAILED,
}
#: Variables for the file with the certificates to trust. If it is a folder, obstore cannot read it.
CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
#: Name of an object that does not exist. Only the storage itself says so.
_PROBE = ".shardwright-no-such-object"


#: Process that imported obstore, whose threads do not exist in its children.
_PROCESS = os.getpid()


def was_forked() -> bool:
    """Returns whether this is a child of `fork` whose parent imported obstore."""
    return os.getpid() != _PROCESS


def keeps_name(name: str) -> bool:
    """Returns whether obstore asks for an object of exactly this name."""
    return not _OTHER_NAMES.search(name)


def variable(*names: str) -> str:
    """Returns the first of some environment variables that is set; empty if none is."""
    return next(filter(None, (os.environ.get(name) for name in names)), "")


def certificates(variables: Iterable[str] = CERTIFICATES) -> dict[str, Any]:
    """Returns obstore's settings for the file with other certificates that an environment variable names.

    Raises:
      EngineError: If it cannot be read.
    """
    named_by = next(filter(os.environ.get, variables), "")
    return {"root_certificate": read_certificates(os.environ[named_by], named_by)} if named_by else {}


def read_certificates(path: str, named_by: str) -> bytes:
    """Reads a file with certificates.

    Args:
      path: Path of the file.
      named_by: Variable or option that names it, for the message.

    Raises:
      EngineError: If it cannot be read. An OSError would look like one of the storage.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngineError(f"{named_by} names {path} ({reason}); correct it.") from error


class Buckets:
    """obstore's stores: one for each bucket and timeout. Each has its own connections.

    Args:
      kind: Class of obstore's store.
      settings: Settings of the class.
      client_options: Options of its HTTP client.
    """

    def __init__(self, kind: Any, settings: dict[str, Any], client_options: dict[str, Any]) -> None:
        self._kind, self._settings, self._client_options = kind, settings, client_options
        self._opened: dict[tuple[str, float, int], Any] = {}

    def open(self, bucket: str, attempts: int = 0) -> Any:
        """Returns the store of a bucket whose requests end before the deadline of this thread's operation.

        Args:
          bucket: Name of the bucket.
          attempts: Number of times that obstore may repeat a request.
        """
        left = faults.current_operation().seconds_left()
        seconds = next((item for item in _TIMEOUTS if item <= left), _TIMEOUTS[-1])
        key = (bucket, seconds, attempts)
        if key not in self._opened:
            self._opened[key] = self._kind(
                bucket,
                **self._settings,
                client_options={
                    "timeout": timedelta(seconds=seconds),
                    "connect_timeout": timedelta(seconds=min(seconds, _CONNECT_SECONDS)),
                    "read_timeout": timedelta(seconds=min(seconds, _SILENT_SECONDS)),
                    **self._client_options,
                },
                retry_config={"max_retries": attempts, "retry_timeout": timedelta(seconds=seconds)},
            )
        return self._opened[key]


class Reader:
    """Reads one object through obstore, a part at a time.

    Args:
      store: Obstore's store of the bucket.
      name: Name of the object.
      mark: Where an answer states the version: `e_tag` or `version`.
    """

    def __init__(self, store: Any, name: str, mark: str = "e_tag") -> None:
        self._store, self._name, self._mark = store, name, mark

    def part(self, version: str, offset: int, length: int) -> bytes:
        """Reads a range, of a version if given; the result is shorter at the end of the object.

        Raises:
          BadAnswer: If the answer is not from the storage.
        """
        answer, _ = self._answer(version, offset, length)
        return b"" if answer is None else bytes(answer.bytes().to_bytes())

    def whole(self, version: str, limit: int) -> tuple[bytes, str]:
        """Returns the bytes and their version, which is unchanged if the object is empty.

        Raises:
          ObjectTooLarge: If the object has more bytes than the limit; -1 is none.
        """
        chunks: list[bytes] = []
        position, size = 0, 1
        while position < size:
            answer, meta = self._answer(version, position, PART_BYTES)
            if answer is None:
                break
            size, version = meta["size"], meta[self._mark].strip('"')
            if 0 <= limit < size:
                raise ObjectTooLarge(size)
            chunks.append(bytes(answer.bytes().to_bytes()))
            position += len(chunks[-1])
            faults.current_operation().reached(position)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks), version

    def _answer(self, version: str, offset: int, length: int) -> tuple[Any, Any]:
        """Returns obstore's answer, whose bytes are still to be read, and its metadata.

        obstore makes a new dictionary of them each time. If the object ends before, both are None.
        """
        options: Any = {"range": (offset, offset + length)}
        if version:
            options |= {"if_match": f'"{version}"'} if self._mark == "e_tag" else {"version": version}
        try:
            answer = obstore.get(self._store, self._name, options=options)
        except Exception as error:
            if answer_of(error).status == _RANGE_NOT_SATISFIABLE or _BEHIND_THE_END in str(error):
                return None, None
            raise
        meta = answer.meta
        stated = (meta[self._mark] or "").strip('"')
        if not stated or (version and stated != version):
            raise faults.BadAnswer(f"the answer has the version {stated or 'none'}")
        return answer, meta


def is_refusal(error: Exception) -> bool:
    """Returns whether the same request will always fail, or cannot be sent."""
    answer = answer_of(error)
    if answer.status:
        return not answer.is_transient
    return _is_about_certificates(error) or not (_is_about_network(error) or is_foreign(error))


def _is_about_network(error: Exception) -> bool:
    return any(part in str(error) for part in ("Error performing", "HTTP error"))


def _is_about_certificates(error: Exception) -> bool:
    return "certificate" in str(error).lower()


def is_foreign(error: Exception) -> bool:
    """Returns whether an answer is not from the storage, or from one that lacks a part of its interface."""
    return isinstance(error, faults.BadAnswer) or (
        not answer_of(error).status and _FOREIGN.search(str(error).partition("Debug source")[0]) is not None
    )


def answer_of(error: BaseException | None) -> faults.Answer:
    """Returns what an error of obstore says."""
    text = " ".join(str(error).partition("Debug source")[0].split()).rstrip(". ")
    status_match, code_match = _STATUS.search(text), _CODE.search(text)
    status = _STATUS_OF.get(type(error).__name__) or (int(status_match[1]) if status_match else 0)
    return faults.Answer(
        status, code_match[1] if code_match else "", text if status else text.rpartition(": ")[2]
    )


class ObjectStore(RemoteStore):
    """A storage of which obstore does everything.

    Attributes:
      paths: How its paths begin, such as `s3://`.
      service: What it calls things.
      other_names: Names that the storage does not keep, besides the names that obstore does not keep.
      name_rule: The rule for names, for messages.
    """

    paths: ClassVar[str]
    service: ClassVar[faults.Service]
    other_names: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")
    name_rule: ClassVar[str] = (
        "may have no empty folders, no `.` or `..` as a folder, and no control characters"
    )

    def __init__(self) -> None:
        super().__init__()
        #: Buckets whose ETags are not the MD5 of their objects, because a key of KMS encrypts them.
        self._without_md5 = set[str]()

    def fault(self, doing: str, path: str, error: Exception) -> faults.Fault | None:
        """Explains an error of obstore."""
        answer = answer_of(error)
        if isinstance(error, faults.Damaged):
            return faults.damaged(doing, path)
        if is_foreign(error):
            return self.service.bad_answer(doing, path)
        if not isinstance(error, BaseError | FileNotFoundError | TimeoutError):
            return None
        text = str(error)
        if any(part in text for part in ("://169.254.", "/latest/api/token", "/metadata/identity")):
            return self.service.no_credentials(doing, path)  # it asked the machine, as it found no others
        if "invalid path" in text or "Encountered illegal character" in text:
            name = re.search(r'"(.*?)"', text)
            listed = f"it holds {name[1]}, and names" if name else "it holds a name, and names"
            return faults.Fault(UsageError(f"Cannot {doing} {path}: {listed} {self._rule()}"))
        if _is_about_certificates(error):
            return self.service.bad_certificate(doing, path)
        if "redirect" in text or answer.code == "AuthorizationHeaderMalformed":
            return faults.Fault(
                EngineError(
                    f"Cannot {doing} {path}: {self.service.name} sends the request elsewhere; "
                    f"name the region of the {self.service.kind} with --s3_region_name."
                )
            )
        if not answer.status and not _is_about_network(error):
            return faults.Fault(EngineError(f"Cannot use {self.paths}: {answer.text}; check its settings."))
        return self.service.fault(doing, path, answer)

    def _rule(self) -> str:
        return f"in {self.paths} {self.name_rule}; rename it."

    def _open(self, path: str, attempts: int = 0) -> tuple[Any, str]:
        """Returns obstore's store of a path, and the name of its object.

        Raises:
          EngineError: In a child of `fork`.
        """
        if was_forked():
            raise EngineError(
                f"Cannot use {path}: {self.paths} does not work in a process that was forked "
                "from one that used it; start processes with the method `forkserver`, in a DataLoader with "
                'multiprocessing_context="forkserver".'
            )
        bucket, name = self.split_path(path)
        return self.client().open(bucket, attempts), name

    def _object(self, path: str, attempts: int = 0) -> tuple[Any, str]:
        """Returns the result of `_open` for a path that names an object.

        Raises:
          UsageError: If the storage does not keep its name.
        """
        name = self.split_path(path)[1]
        if not keeps_name(name) or self.other_names.search(name):
            raise UsageError(f"Cannot use {path}: names {self._rule()}")
        return self._open(path, attempts)

    def read(self, path: str, version: str = "", limit: int = -1) -> bytes:
        """Reads an object."""
        reader, bucket = Reader(*self._object(path)), self.split_path(path)[0]
        data, etag = reader.whole(version, limit)
        if data and _MD5.fullmatch(etag) and bucket not in self._without_md5 and _md5_of(data) != etag:
            if _md5_of(reader.whole(etag, limit)[0]) != _md5_of(data):
                raise faults.Damaged
            self._without_md5.add(bucket)  # the same bytes again: this ETag is no MD5
        return data

    def read_range(self, path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
        """Reads a range of an object."""
        return Reader(*self._object(path)).part(version, offset, length)

    def stat(self, path: str) -> StoredObject:
        """Returns the metadata of an object."""
        store, name = self._object(path)
        answer = obstore.get(store, name, options={"head": True})
        if answer.attributes.get("hdi_isfolder", "").lower() == "true":  # of Azure
            raise FileNotFoundError("it is a folder")
        return self._stored(path, answer.meta)

    def _stored(self, path: str, meta: Any) -> StoredObject:
        if not meta["e_tag"]:
            raise faults.BadAnswer("the answer has no ETag")
        modified = meta["last_modified"].timestamp()
        return StoredObject(path, meta["size"], meta["e_tag"].strip('"'), modified=modified)

    def _put(self, path: str, data: Any, attempts: int = 0, cache_control: str = "", **more: Any) -> None:
        attributes = {"Content-Type": content_type(path)}
        if cache_control:
            attributes["Cache-Control"] = cache_control
        store, name = self._object(path, attempts)
        obstore.put(store, name, data, attributes=attributes, **more)

    def write_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Writes an object if its ETag is unchanged."""
        mode: Any = "create" if version is None else {"e_tag": f'"{version}"'}
        try:
            self._put(path, data, cache_control="no-store", mode=mode, use_multipart=False)
        except Exception as error:
            answer = answer_of(error)
            if answer.status == _NOT_IMPLEMENTED:
                raise NoConditions(
                    f"Cannot write {path}: this storage does not support conditional requests, "
                    "which keep two writers apart; use one that does, such as Amazon S3 or MinIO."
                ) from error
            is_conflict = answer.status == _PRECONDITION_FAILED and not answer.is_transient
            if is_conflict or answer.code in ("NoSuchKey", "BlobNotFound"):
                return False
            raise
        return True

    def upload(self, file: IO[bytes], path: str) -> None:
        """Writes an open file, in parts if it is large."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= PART_BYTES:
            self._put(path, file.read(), use_multipart=False)
            return

        operation = faults.current_operation()  # obstore asks for chunks in another thread

        def chunks() -> Iterator[bytes]:
            while chunk := file.read(1 << 20):
                yield chunk
                operation.reached(file.tell())

        self._put(
            path, chunks(), UPLOAD_RETRIES, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=1
        )

    def copy(self, source: str, target: str) -> bool:
        """Copies an object on the servers, unless it is in another bucket or very large."""
        state = self.stat(source)
        if self.split_path(source)[0] != self.split_path(target)[0] or state.size > _COPY_BYTES:
            return False
        store, name = self._object(source)
        obstore.copy(store, name, self._object(target)[1])
        return True

    def delete(self, path: str) -> None:
        """Removes an object."""
        obstore.delete(*self._object(path))

    def list_pages(self, directory: str, deep: bool, token: str) -> Iterator[ListedPage]:
        """Yields pages of a listing; a token is the last name of a page.

        obstore lists one level only as a whole. So a folder is listed as a stream until a folder is inside.
        """
        bucket, prefix = self.split_folder(directory)
        stripped = prefix.rstrip("/")
        if stripped and not keeps_name(stripped):
            raise UsageError(f"Cannot list {directory}: names {self._rule()}")
        store, _ = self._open(directory)
        is_empty = not token
        for items in obstore.list(store, stripped or None, offset=token or None, chunk_size=PAGE):
            is_empty = False
            names = [item["path"] for item in items]
            if token and names[-1] <= token:  # this server begins with its first name
                continue
            if not deep and any("/" in item.removeprefix(prefix) for item in names):
                yield self._level(store, bucket, prefix)
                return
            yield ListedPage(self._objects(bucket, prefix, items), [], names[-1])
        if is_empty:  # to obstore, a login page may look like an empty listing; this raises `BadAnswer`
            with contextlib.suppress(FileNotFoundError, PermissionDeniedError):
                self.stat(f"{self.paths}{bucket}/{_PROBE}")

    def _level(self, store: Any, bucket: str, prefix: str) -> ListedPage:
        """Lists the objects and folders directly in a folder."""

        async def listed() -> Any:
            return await asyncio.wait_for(
                obstore.list_with_delimiter_async(store, prefix.rstrip("/") or None), _LEVEL_SECONDS
            )

        with ThreadPoolExecutor(1) as executor:  # this thread may run a loop, as in notebooks
            listing = executor.submit(asyncio.run, listed()).result()
        folders = [item.removeprefix(prefix) for item in listing["common_prefixes"]]
        return ListedPage(self._objects(bucket, prefix, listing["objects"]), folders, "")

    def _objects(self, bucket: str, prefix: str, items: Iterable[Any]) -> list[StoredObject]:
        """Returns the listed objects without folders that a console made.

        obstore shows `cats/` as an object `cats`. Such an object is empty, and there is no `cats`.
        """
        root = f"{self.paths}{bucket}/"
        return [
            self._stored(root + item["path"], item)
            for item in items
            if item["path"].startswith(prefix) and (item["size"] or self._exists(root + item["path"]))
        ]

    def _exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True


def _md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
