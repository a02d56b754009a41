"""A folder on each kind of storage, accessed without the code under test.

Google's emulator and Azurite run in processes of their own, moto's S3 in a thread.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import boto3
import obstore
import pytest
from google.cloud import storage as google_storage
from obstore.store import AzureStore

from helpers.packing import tree_members
from helpers.servers import free_port, server
from helpers.trees import put_files
from shardwright.core import storage

_count = itertools.count()
#: The emulator without its list of all objects, which it would write after every change.
_EMULATOR = """
import sys
from gcp_storage_emulator import __main__, storage
storage.Storage._write_config_to_file = lambda self: None
__main__.main(sys.argv[1:])
"""
ACCOUNT = "devstoreaccount1"
#: Azurite's published key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Owner:
    """A folder of a storage.

    Attributes:
      url: The folder.
      options: Options of commands for access to it.
    """

    url: str
    options: tuple[str, ...] = ()

    def put(self, name: str, data: bytes) -> None:
        """Writes a file."""
        raise NotImplementedError

    def put_files(self, files: Mapping[str, bytes], prefix: str = "") -> None:
        """Writes several files."""
        for name, data in files.items():
            self.put(prefix + name, data)

    def put_tree(self, root: Path, prefix: str = "") -> Self:
        """Uploads all files below a local directory; returns this folder."""
        self.put_files(tree_members(root, prefix))
        return self

    def get(self, name: str) -> bytes:
        """Reads a file."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Removes a file."""
        raise NotImplementedError

    def all_names(self) -> list[str]:
        """Returns the names of all files."""
        raise NotImplementedError

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all files that begin with a prefix, without it."""
        return sorted(name.removeprefix(prefix) for name in self.all_names() if name.startswith(prefix))

    def document(self, prefix: str) -> dict[str, Any]:
        """Returns a dataset's `dataset.json`."""
        made: dict[str, Any] = json.loads(self.get(f"{prefix}/dataset.json"))
        return made


class Disk(Owner):
    """A folder of the local disk."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url

    def put(self, name: str, data: bytes) -> None:
        put_files(self.root, {name: data})

    def get(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def all_names(self) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()]


class Bucket(Owner):
    """A bucket in Google's emulator."""

    def __init__(self, client: google_storage.Client, name: str = "") -> None:
        self.name = name or f"photos-{next(_count)}"
        self.url = f"gs://{self.name}"
        self._bucket = client.bucket(self.name)
        client.create_bucket(self._bucket)
        self._bucket.soft_delete_policy.retention_duration_seconds = 0
        self._bucket.patch()

    def put(self, name: str, data: bytes, encoding: str | None = None) -> None:
        blob = self._bucket.blob(name)
        blob.content_encoding = encoding
        blob.upload_from_string(data, "application/octet-stream")

    def get(self, name: str) -> bytes:
        return bytes(self._bucket.blob(name).download_as_bytes(raw_download=True, checksum=None))

    def kind_of(self, name: str) -> str:
        """Returns the content type of an object."""
        return str(self._bucket.get_blob(name).content_type)

    def delete(self, name: str) -> None:
        self._bucket.blob(name).delete()

    def generations(self) -> dict[str, int]:
        """Returns the generation of every object, which changes with its content."""
        return {blob.name: blob.generation for blob in self._bucket.list_blobs()}

    def all_names(self) -> list[str]:
        return [*self.generations()]

    def fetch(self, prefix: str, to: Path) -> Path:
        """Downloads a folder, for code that reads local datasets."""
        return put_files(to, {name: self.get(f"{prefix}/{name}") for name in self.names(f"{prefix}/")})


@contextlib.contextmanager
def google_emulator(folder: Path) -> Iterator[tuple[str, int]]:
    """Runs Google's emulator; yields its host and port."""
    port = free_port()
    command = [sys.executable, "-c", _EMULATOR, "start", "--host=127.0.0.1", f"--port={port}"]
    with server([*command, "--in-memory", "--quiet"], port, folder):
        yield "127.0.0.1", port


class S3(Owner):
    """A bucket of moto's server, which imitates Amazon S3."""

    def __init__(self, endpoint: str) -> None:
        self.options = (
            f"--s3_endpoint_url={endpoint}", "--s3_access_key_id=testing", "--s3_secret_access_key=testing",
            "--s3_region_name=us-east-1",
        )  # fmt: skip
        self.name = f"pictures-{next(_count)}"
        self.url = f"s3://{self.name}"
        self._client = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id="testing", aws_secret_access_key="testing",
            region_name="us-east-1",
        )  # fmt: skip
        self._client.create_bucket(Bucket=self.name)

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=name, Body=data)

    def get(self, name: str) -> bytes:
        return bytes(self._client.get_object(Bucket=self.name, Key=name)["Body"].read())

    def kind_of(self, name: str) -> str:
        """Returns the content type of an object."""
        return str(self._client.head_object(Bucket=self.name, Key=name)["ContentType"])

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=name)

    def all_names(self) -> list[str]:
        return [item["Key"] for item in self._client.list_objects_v2(Bucket=self.name).get("Contents", [])]


class Container(Owner):
    """A container of Azurite, which imitates Azure Blob Storage."""

    def __init__(self, url: str) -> None:
        self.options = (f"--azure_connection_string={connection_string(url)}",)
        self.name = f"pictures-{next(_count)}"
        self.url = f"az://{self.name}"
        self._store: Any = AzureStore(
            self.name, account_name=ACCOUNT, account_key=KEY, endpoint=f"{url}/{ACCOUNT}",
            client_options={"allow_http": True},
        )  # fmt: skip
        _create(url, self.name)

    def put(self, name: str, data: bytes, **attributes: str) -> None:
        given: Any = attributes
        obstore.put(self._store, name, data, attributes=given, use_multipart=False)

    def get(self, name: str) -> bytes:
        return bytes(obstore.get(self._store, name).bytes())

    def delete(self, name: str) -> None:
        obstore.delete(self._store, name)

    def all_names(self) -> list[str]:
        return [item["path"] for item in obstore.list(self._store).collect()]


def connection_string(url: str) -> str:
    """Returns the connection string for the URL of a server like Azure."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url}/{ACCOUNT};"
    )


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Runs Azurite and yields its URL; skips the test without Azurite."""
    program = shutil.which("azurite-blob")
    if not program:
        pytest.skip("azurite-blob is not on the PATH; install it with `npm install --global azurite`")
    port = free_port()
    flags = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry")
    with server([program, "--blobPort", port, *flags], port, folder):
        yield f"http://127.0.0.1:{port}"


def _create(url: str, name: str) -> None:
    """Creates a container, which obstore cannot do."""
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-12-02"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{_signature(signed)}", "Content-Length": "0"}
    place = f"{url}/{ACCOUNT}/{name}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(place, method="PUT", headers=headers)):
        pass


def _signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def signature_for(container: str) -> str:
    """Returns a shared access signature for a container."""
    fields = {"sp": "racwdl", "se": "2099-01-01T00:00:00Z", "sv": "2021-12-02", "sr": "c"}
    resource = f"/blob/{ACCOUNT}/{container}"
    signed = "\n".join([fields["sp"], "", fields["se"], resource, "", "", "", fields["sv"], "c", *[""] * 7])
    return urlencode({**fields, "sig": _signature(signed)})


def read_copy(path: str) -> bytes:
    """Reads a file through a local copy, with the code under test."""
    with storage.open_local(path) as file:
        return file.read()


@dataclass(frozen=True)
class Place:
    """An empty folder on a storage.

    Attributes:
      scheme: Scheme of its paths; empty for the local disk.
      owner: Writes and reads objects without the code under test; its URL is the folder.
    """

    scheme: str
    owner: Owner

    @property
    def url(self) -> str:
        """The folder."""
        return self.owner.url
