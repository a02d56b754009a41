"""A rebuild reports what a validation of the whole version would report, and checks only what is new."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.core.plan.forecast import Placement
from shardwright.core.validation import record
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.pipelines.validate import validate
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import DataRefused
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import load_ledger
from shardwright.transforms import validate as validating

SETTINGS: dict[str, Any] = {"splits": "train=0.7,test=0.3", "shards": "train=3,test=2", "resize": 24}
CLASSES = ("ant", "bee", "cat")


def draw(path: Path, seed: int, side: int = 24) -> None:
    """Draws a picture that differs from all others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colors = np.random.default_rng(seed).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    Image.fromarray(colors).resize((side, side), Image.Resampling.BICUBIC).save(path)


class Watched:
    """The work of a rebuild's checks.

    Attributes:
      shards: shards that were read back.
      decoded: number of pictures that were decoded for this.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shards: list[str] = []
        self.decoded = 0
        check_shard, check_image = validating.check_shard, record.check_image

        def checked(task: Any, *args: Any, **more: Any) -> Any:
            self.shards.append(task.file)
            return check_shard(task, *args, **more)

        def looked(*args: Any, **more: Any) -> Any:
            self.decoded += 1
            return check_image(*args, **more)

        monkeypatch.setattr(validating, "check_shard", checked)
        monkeypatch.setattr(record, "check_image", looked)

    def reset(self) -> None:
        self.shards.clear()
        self.decoded = 0


class Place:
    """A source, the versions of its dataset, and the work of checks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.watched = Watched(monkeypatch)
        for number, name in enumerate(CLASSES):
            for image in range(7):
                draw(self.source / name / f"{image}.png", 100 * number + image)

    def rebuild(self, verify: str = "quality", job: str = "", **more: Any) -> RebuildResult:
        self.watched.reset()
        given = {"input": str(self.source), "output": str(self.folder / "out"), **SETTINGS, **more}
        return rebuild(job, **given, **({"verify": verify} if verify else {}))

    def job(self, text: str) -> str:
        path = self.folder / "job.yaml"
        path.write_text(text)
        return str(path)

    def agrees(self, made: RebuildResult, mode: str) -> dict[str, int]:
        """Compares the findings with a validation of the whole version; returns the counts."""
        fresh = self.folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        validate(made.path, mode=mode, report=fresh / "findings.json")
        documents = []
        for directory in (Path(made.path), fresh):
            document = json.loads((directory / "findings.json").read_text())
            assert document.pop("dataset") and document.pop("time") and document.pop("digest")
            for item in (*document["checks"], *document["findings"]):
                assert item.pop("time")
            documents.append(document)
        assert documents[0] == documents[1]
        if mode == "quality":
            for name in ("statistics.json", "stats.pb"):
                assert (Path(made.path) / name).read_bytes() == (fresh / name).read_bytes()
        counts: dict[str, int] = documents[0]["counts"]
        return counts

    def written(self, made: RebuildResult) -> dict[str, str]:
        """Returns the key of each image in a version, and its shard."""
        found = {}
        for path in sorted((Path(made.path) / "_shards").glob("*.jsonl.gz")):
            header, entries = load_ledger(path.read_bytes())
            found.update({entry.key: header.file for entry in entries if entry.outcome == "written"})
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A source, and a place for versions."""
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize("mode", [pytest.param("full", marks=pytest.mark.slow), "quality"])
def test_findings_equal_those_of_the_whole_version(place: Place, mode: str) -> None:
    first = place.rebuild(mode)
    assert len(place.watched.shards) == 5 and place.watched.decoded == 21
    found = place.agrees(first, mode)
    assert "SPLIT_LEAKAGE" not in found
    where = place.written(first)
    train = next(key for key in where if where[key].startswith("train"))
    # A picture that already exists in the other split, and an unknown class.
    names = [f"{CLASSES[0]}/x{number}.png" for number in range(40)]
    shutil.copy(place.source / train, place.source / _in_split(place, names, "test"))
    draw(place.source / "dog" / "new.png", 999)
    second = place.rebuild(mode)
    touched = {place.written(second)[key] for key in place.written(second).keys() - where.keys()}
    assert set(place.watched.shards) == touched and len(touched) < 5
    assert place.watched.decoded == 2  # other pictures have bytes that an earlier check decoded
    assert place.agrees(second, mode)["SPLIT_LEAKAGE"] == 1


def _in_split(place: Place, names: list[str], split: str) -> str:
    """Returns the name of an image that goes to a split."""
    placement = Placement(ConvertSettings(splits=SETTINGS["splits"]))
    return next(name for name in names if placement.split(ImageRef(name, name)) == split)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_findings_are_right_after_any_changes(place: Place, seed: int) -> None:
    """After images are added, removed, changed, moved and relabelled, findings equal a whole validation."""
    chance = random.Random(seed)
    place.rebuild()
    for step in range(6):
        mode = chance.choice(["quality", "quality", "full"])
        images = sorted(place.source.rglob("*.png"))
        for number in range(chance.randrange(1, 4)):
            name = place.source / chance.choice([*CLASSES, f"new{step}"]) / f"{step}-{number}.png"
            name.parent.mkdir(exist_ok=True)
            image = chance.choice(images)
            match chance.randrange(5):
                case 0:
                    draw(name, chance.randrange(10**6), chance.choice([24, 24, 90]))
                case 1 if image.exists():
                    shutil.copy(image, name)
                case 2 if image.exists():
                    image.rename(name)
                case 3 if image.exists() and len(images) > 15:
                    image.unlink()
                case _:
                    draw(image, chance.randrange(10**6))
        made = place.rebuild(mode)
        if not made.changed:
            continue
        work = made.outcome["work"]
        new = work["shards"] - work["reused_shards"]
        assert len(place.watched.shards) == new or (len(place.watched.shards) > new and mode == "quality")
        place.agrees(made, mode)


def test_leakage_is_found_from_the_ledgers_alone(place: Place) -> None:
    made = place.rebuild("fast")
    where = place.written(made)
    train = next(key for key in where if where[key].startswith("train") and key.startswith("bee/"))
    name = _in_split(place, [f"bee/x{number}.png" for number in range(40)], "test")
    shutil.copy(place.source / train, place.source / name)
    job = place.job("gates: {fail_on: [SPLIT_LEAKAGE]}\ninput: x\noutput: y\n")
    with pytest.raises(DataRefused, match="1 SPLIT_LEAKAGE, the first in t"):
        place.rebuild("", job)
    assert len(place.watched.shards) == 1 and not place.watched.decoded
    version = max((place.folder / "out" / "versions").iterdir())
    assert not (version / "_checks").exists()
    found = json.loads((version / "findings.json").read_text())
    # Records contain the checksum of their source, so a validation finds the same.
    report = validate(version, mode="fast", report=place.folder / "findings.json", fail_on="SPLIT_LEAKAGE")
    assert [item.as_json() for item in report.findings] == [
        {name: value for name, value in item.items() if name not in ("severity", "depth", "time")}
        for item in found["findings"]
    ]
    assert len(found["findings"]) == 1
    (place.source / name).unlink()
    draw(place.source / "bee" / "other.png", 77)
    place.rebuild("", job)  # the finding disappears


def test_a_damaged_ledger_refuses_the_version(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwright.transforms import validate as transforms

    def damaged(data: bytes, split: str, file: str) -> Any:
        raise EOFError("it ends early")

    monkeypatch.setattr(transforms, "rows_of_ledger", damaged)
    with pytest.raises(DataRefused, match="5 LEDGER_MISMATCH"):
        place.rebuild("fast")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("verify", "asked", "mode"),
    [
        ("fast", "fail_on: [DARK]", "quality"),
        ("fast", "warn_on: [BOX_RANGE]", "full"),
        ("fast", "fail_on: [SHARD_CHECKSUM, SPLIT_LEAKAGE]", "frames"),
    ],
)
def test_gates_decide_the_depth_of_the_check(place: Place, verify: str, asked: str, mode: str) -> None:
    job = place.job(f"input: x\noutput: y\ngates: {{{asked}}}\n")
    made = place.rebuild(verify, job)
    assert json.loads((Path(made.path) / "findings.json").read_text())["mode"] == mode
    assert (place.watched.decoded > 0) == (mode != "frames")


def test_a_conversion_can_measure_its_pictures(tmp_path: Path, convert_photos: Callable[..., Any]) -> None:
    made = Path(convert_photos(resize=24, verify="quality", splits="train=0.8,test=0.2", shards=2).path)
    document = json.loads((made / "findings.json").read_text())
    assert document["mode"] == "quality"
    report = validate(made, mode="quality", report=tmp_path / "findings.json")
    assert report.counts == document["counts"]
    for name in ("statistics.json", "stats.pb"):
        assert (made / name).read_bytes() == (tmp_path / name).read_bytes()
    assert not (made / "_checks").exists()
