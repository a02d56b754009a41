"""Makes a directory of versions without a rebuild: copies of a dataset, each with a `version.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardwright.core import storage
from shardwright.schemas.dataset import with_digest

V1, V2, V3, V4 = (f"2026112{day}T020000Z" for day in range(1, 5))
#: 21 November 2026, 2:00 UTC.
FIRST = 1_795_226_400.0
DAY = 86_400.0


def add_version(
    output: object, dataset: Path | None, version: str, state: str = "published", **fields: Any
) -> str:
    """Adds a version and returns its directory; without a dataset the version is incomplete."""
    directory = f"{output}/versions/{version}"
    fingerprint = ""
    if dataset is not None:
        for path in (path for path in sorted(dataset.rglob("*")) if path.is_file()):
            storage.write_bytes(f"{directory}/{path.relative_to(dataset).as_posix()}", path.read_bytes())
        fingerprint = str(json.loads((dataset / "dataset.json").read_text())["fingerprint"])
    number = (V1, V2, V3, V4).index(version)
    began = FIRST + number * DAY
    document = {
        "format_version": 1, "version": version, "state": state, "created": began, "finished": began + 60,
        "previous": "", "fingerprint": fingerprint, "records": 7, "total_bytes": 7000, "work": {},
        "changes": {}, "refusals": [], "accepted": [], **fields,
    }  # fmt: skip
    storage.write_bytes(f"{directory}/version.json", json.dumps(with_digest(document)).encode())
    return directory


def refusal(gate: str, name: str, severity: str = "error") -> dict[str, str]:
    """Returns a violation that a gate reported."""
    return {"gate": gate, "name": name, "severity": severity, "message": f"{name}: more than is allowed"}


def point_to(output: object, version: str, previous: str = "") -> None:
    """Makes the pointer name a version."""
    record = storage.read_if_exists(f"{output}/versions/{version}/version.json")
    fingerprint = json.loads(record)["fingerprint"] if record else "f"
    document = {
        "format_version": 1, "version": version, "fingerprint": fingerprint, "published": FIRST,
        "previous": previous,
    }  # fmt: skip
    storage.write_bytes(f"{output}/latest.json", json.dumps(document).encode())


def latest_of(output: object) -> dict[str, Any]:
    """Returns the content of the pointer."""
    found: dict[str, Any] = json.loads(storage.read_bytes(f"{output}/latest.json"))
    return found


def state_of(output: object, version: str) -> str:
    """Returns the state of a version."""
    return str(json.loads(storage.read_bytes(f"{output}/versions/{version}/version.json"))["state"])


def make_versions(output: object, dataset: Path) -> None:
    """Makes three published versions; the last one is the latest."""
    for version in (V1, V2, V3):
        add_version(output, dataset, version)
    point_to(output, V3, V2)
