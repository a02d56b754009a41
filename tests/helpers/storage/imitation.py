"""Scripts that a server plays as Google's, Amazon's or Microsoft's storage."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import google.auth
import pytest
from google.auth.credentials import AnonymousCredentials

from shardwright.core import storage

from .buckets import connection_string
from .scripted import Request, Response, Script, Scripted, scripted

#: The version of scripted objects: a generation, and an ETag that is no MD5.
VERSION = "7"
MODIFIED = "Tue, 24 Nov 2026 10:00:00 GMT"


def whole(request: Request, body: bytes, etag: str = VERSION, **how: Any) -> Response:
    """Returns an object as all three storages send it; they obey ranges."""
    headers: tuple[tuple[str, str], ...] = (
        ("ETag", f'"{etag}"'), ("Last-Modified", MODIFIED), ("x-goog-generation", etag),
        ("x-goog-hash", f"crc32c={storage.crc32c_of(body)}"),
    )  # fmt: skip
    wanted = request.headers.get("Range", "")
    if not wanted:
        return Response(body, headers=headers, **how)
    begin, _, end = wanted.removeprefix("bytes=").partition("-")
    part = body[int(begin) : int(end) + 1 if end else None]
    if not part:
        return Response(b"", 416)
    place = f"bytes {begin}-{int(begin) + len(part) - 1}/{len(body)}"
    return Response(part, 206, headers=(*headers, ("Content-Range", place)), **how)


def holding(scheme: str, body: bytes, version: str = VERSION) -> Script:
    """Returns the script of a storage in which every object has the same bytes."""

    def script(request: Request) -> Response:
        is_metadata = scheme == "gs" and request.path.startswith("/storage/v1/b/b/o/")
        if is_metadata and request.query.get("alt") != "media":
            about = {"name": "a", "bucket": "b", "size": str(len(body)), "generation": version}
            return Response(json.dumps({**about, "crc32c": storage.crc32c_of(body)}).encode())
        return whole(request, body, version)

    return script


class Imitation:
    """Serves scripts as one storage.

    Attributes:
      scheme: Scheme of its paths.
    """

    def __init__(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheme, self._patch = scheme, monkeypatch

    def page(self, *names: str, token: str = "") -> bytes:
        """Returns a page of a listing."""
        pages = {"gs": google_page, "s3": amazon_page, "az": azure_page}
        return pages[self.scheme](*names, token=token)

    @property
    def name(self) -> str:
        """What messages call it."""
        return {"gs": "Google Cloud Storage", "s3": "S3", "az": "Azure"}[self.scheme]

    def path(self, name: str = "a") -> str:
        """Returns the path of an object in the bucket `b`."""
        return f"{self.scheme}://b/{name}"

    @contextlib.contextmanager
    def serve(self, script: Script) -> Iterator[Scripted]:
        """Serves a script; other servers before it are forgotten."""
        with scripted(script) as (url, server):
            self._patch.delenv("STORAGE_EMULATOR_HOST", raising=False)
            self._patch.setenv("API_ENDPOINT_OVERRIDE", url)
            self._patch.setattr(google.auth, "default", lambda scopes: (AnonymousCredentials(), None))
            self._patch.setenv("AWS_ENDPOINT_URL_S3", url)
            self._patch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(url))
            yield server

    def holding(self, body: bytes, version: str = VERSION) -> Script:
        """Returns the script of a storage in which every object has the same bytes."""
        return holding(self.scheme, body, version)


def google_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Google's format."""
    items = [{"name": name, "size": "1", "generation": "1", "crc32c": "AAAAAA=="} for name in names]
    return json.dumps({"items": items, **({"nextPageToken": token} if token else {})}).encode()


def amazon_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Amazon's format."""
    items = "".join(
        f"<Contents><Key>{name}</Key><Size>1</Size><ETag>&quot;7&quot;</ETag>"
        "<LastModified>2026-11-24T10:00:00.000Z</LastModified></Contents>"
        for name in names
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult '
        'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
        f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}{items}</ListBucketResult>"
    ).encode()


def azure_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Azure's format."""
    kind = "<BlobType>BlockBlob</BlobType>"
    date = "<Last-Modified>Tue, 24 Nov 2026 10:00:00 GMT</Last-Modified>"
    size = "<Content-Length>1</Content-Length><Content-Type>image/png</Content-Type>"
    about = f"<Properties><Etag>7</Etag>{size}{kind}{date}</Properties>"
    items = "".join(f"<Blob><Name>{name}</Name>{about}</Blob>" for name in names)
    return (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="b">'
        f"<Blobs>{items}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
    ).encode()
