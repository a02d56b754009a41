"""Buckets of moto's server, which imitates Amazon S3, accessed without the code under test."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import boto3

_count = itertools.count()


class S3:
    """A bucket of the server, and the options for access to it."""

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
        """Writes an object."""
        self._client.put_object(Bucket=self.name, Key=name, Body=data)

    def get(self, name: str) -> bytes:
        """Reads an object."""
        return bytes(self._client.get_object(Bucket=self.name, Key=name)["Body"].read())

    def kind_of(self, name: str) -> str:
        """Returns the content type of an object."""
        return str(self._client.head_object(Bucket=self.name, Key=name)["ContentType"])

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all objects, without the prefix."""
        listed: Any = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", [])
        return sorted(item["Key"].removeprefix(prefix) for item in listed)

    def put_tree(self, root: Path, prefix: str) -> None:
        """Uploads all files below a local directory."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            self.put(prefix + path.relative_to(root).as_posix(), path.read_bytes())
