"""Changes to finished datasets, and what validation currently finds in each of them at each depth."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from golden_datasets import versions
from helpers.depths import DEPTHS, Placed, findings_at, placed_images
from helpers.mutations import (
    KEPT,
    MUTATIONS,
    OBJECTS,
    RESIZED,
    Mutation,
    ledger,
    make_datasets,
    set_at,
    sources_of,
)
from helpers.resealing import frame, read_shard
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.findings import Finding

MANY = "many"
DAMAGES = 12
#: Code, shard, record, offset and key of a finding; then the last four of the other record, if there is one.
Row = list[str | int | None]
Found = dict[str, list[Row] | str]

__all__ = ["CHANGES", "GoldenFindings", "name_of", "versions"]


def _damage(dataset: str, number: int) -> Mutation:
    """Damages a place in a shard, or changes a byte of a record and adds it as another record."""

    def change(path: Path) -> None:
        chance = random.Random(f"{dataset} {number}")
        shard = chance.choice(sorted(path.glob("*.tfrecord")))
        data = bytearray(shard.read_bytes())
        place = chance.randrange(len(data))
        if number % 3 == 0:
            data[place] ^= 1 << chance.randrange(8)
        elif number % 3 == 1:
            del data[place : place + chance.randrange(1, 300)]
        else:
            records = read_shard(shard)
            changed = bytearray(chance.choice(records))
            changed[chance.randrange(min(len(changed), 200)) * chance.choice((1, -1))] ^= 1
            records.insert(chance.randrange(len(records) + 1), bytes(changed))
            data[:] = b"".join(map(frame, records))
        shard.write_bytes(data)

    return Mutation("a damaged shard", f"{dataset}, {number}", dataset, change)


def _among_many() -> Iterator[Mutation]:
    """Yields changes to one line of a long ledger."""
    place = (MANY, "train-00000-of-00001")
    for field, value in {
        "key": "class0/other.jpg", "sha256": "0" * 64, "label": "class9", "offset": 1, "length": 1,
        "stored": "0" * 64, "format": "png", "source_width": 7, "outcome": "quarantined", "digest": "0" * 16,
    }.items():  # fmt: skip
        yield ledger(f"one line of many: {field}", set_at(70, field, value), *place)
    yield ledger("one line of many: label removed", lambda it: it[70].pop("label"), *place)
    yield ledger("two lines of many exchanged", lambda it: it.insert(70, it.pop(71)), *place)


CHANGES = [
    *MUTATIONS,
    *(_damage(dataset, number) for dataset in (RESIZED, KEPT, OBJECTS) for number in range(DAMAGES)),
    *_among_many(),
]


def name_of(mutation: Mutation) -> str:
    """Returns the name of a change in the file of expected findings."""
    return f"{mutation.group}: {mutation.name}"


def _row_of(finding: Finding) -> Row:
    place = [finding.code.value, finding.shard, finding.record, finding.offset, finding.key]
    return [*place, *(finding.other or ())]


class GoldenFindings:
    """The datasets that are changed, and the findings in changed copies of them.

    Args:
      root: An empty folder for the datasets.
      photos: The example images, in folders by class.
    """

    def __init__(self, root: Path, photos: Path) -> None:
        self._root = root
        self._placed: dict[str, Placed] = {}
        make_datasets(root, photos)
        for number in range(120):
            folder = root / "small pictures" / f"class{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (24, 24), (2 * number, 90, 30)).save(folder / f"{number:03}.jpg")
        convert(input=str(root / "small pictures"), output=str(root / MANY), verify="none")

    def of(self, mutation: Mutation) -> Found:
        """Returns depth -> findings; a depth with the findings of the one before is left out."""
        how = sources_of(self._root, mutation.dataset)
        if mutation.dataset == MANY:
            how = {"against": str(self._root / "small pictures")}
        if mutation.dataset not in self._placed:
            self._placed[mutation.dataset] = placed_images(self._root / mutation.dataset, how)
        copy = self._root / "copy" / "dataset"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._root / mutation.dataset, copy)
        mutation.change(copy)
        found: Found = {}
        before: list[Row] | str | None = None
        for depth in DEPTHS:
            findings = findings_at(copy, depth, how, self._placed[mutation.dataset])
            rows = findings if isinstance(findings, str) else sorted(map(_row_of, findings), key=repr)
            if rows != before:
                found[depth] = before = rows
        return found
