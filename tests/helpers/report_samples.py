"""Generated reports for tests: ordinary, huge and hostile ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from PIL import Image

from helpers import pictures
from shardwright.core.report import gather
from shardwright.core.report.measures import PictureSize, measure
from shardwright.core.report.thumbnails import Quarantined, RecordAt, Thumbnail
from shardwright.schemas.codes import QUALITY, WARNINGS, FindingCode
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.drift import Changes, ClassDrift, Distance, Drift, OfSplits, Pair, summed
from shardwright.schemas.findings import Finding, ValidationReport, Where
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.ledger import ledger_json
from shardwright.schemas.plan import Plan

#: Names that break pages without escaping, each in another place.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</svg></style></script><script>alert(3)</script>",
    "' onmouseover='alert(4)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp;",
    "right\u202eleft\u2066 isolate",
    "two\nlines\r\n\tand a tab\x00\x1b[31m",
    "javascript:alert(5)",
    "]]><!-- -->",
    "nice 猫 القطة 🐱",
    "lone \ud800 surrogate and \udcff escape",
    "x" * 5_000,
    "'\"<&>`$\\" * 700,
    "",
)


def thumbnail(number: int, noisy: bool = False) -> Thumbnail:
    """Returns a picture of one color, or of noise, whose JPEG has the maximum size for its dimensions."""
    image = Image.new("RGB", (96, 72), (37 * number % 256, 91 * number % 256, 53 * number % 256))
    if noisy:
        image = Image.frombytes("RGB", (128, 128), random.Random(number).randbytes(128 * 128 * 3))
    return Thumbnail(pictures.file_of(image, "JPEG", quality=74), *image.size)


def dataset_of(class_counts: dict[str, dict[str, int]], records: dict[str, int], **fields: Any) -> Dataset:
    """Returns a dataset with a shard of 1 GB in each split.

    Args:
      class_counts: Split -> class -> records.
      records: Split -> records.
      **fields: Other fields of the dataset, and `settings`.
    """
    labels = tuple(dict.fromkeys(name for counts in class_counts.values() for name in counts))
    return Dataset(
        **{
            "name": "pets", "layout": "classification", "features": (), "versions": {},
            "ledger": ledger_json({}, {}),
            "plan": Plan(labels, dict.fromkeys(records, 1), {}, fields.pop("settings", {})),
            "splits": {
                split: (Shard(f"{split}-00000-of-00001.tfrecord", count, 10**9, "a"),)
                for split, count in records.items()
            },
            "class_counts": class_counts,
            **fields,
        }
    )  # fmt: skip


def drift_of(records: Mapping[str, Pair] | None = None, **fields: Any) -> Drift:
    """Returns the differences between two datasets of other builds, which are none but for some fields."""
    splits, nothing = records or {}, ClassDrift(OfSplits(Distance(0, "", 0), {}), (), (), {}, {})
    sizes = summed(splits), summed(dict.fromkeys(splits, Pair(1, None)))
    same = Drift(Pair("old", "new"), Pair("a", "b"), Changes(), *sizes, nothing, {}, Pair(0.0, 0.0))
    return replace(same, **fields)


def findings_json(
    depth: str, fingerprint: str | None, counts: dict[str, int], findings: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the content of a `findings.json` of one check."""
    time = "2026-01-02T03:04:05Z"
    return {
        "dataset": "pets", "mode": depth, "depth": depth, "time": time, "fingerprint": fingerprint,
        "shards": 3, "records": 60, "bytes": 1, "counts": counts, "fail_on": [], "warn_on": [],
        "against": [], "checks": [],
        "findings": [{**finding, "depth": depth, "time": time} for finding in findings],
    }  # fmt: skip


def validation_of(per_code: int, codes: tuple[FindingCode, ...], name: str) -> ValidationReport:
    """Returns a validation with this number of findings of each code; keys and messages contain a name."""
    other = Where("test-00000-of-00001.tfrecord", 1, 7, name)
    findings = (
        Finding(
            code, f"{name} {number}", "train-00000-of-00001.tfrecord", number, number * 100,
            f"{name} {number}", other if code in gather.PAIRS else None,
        )
        for code in codes
        for number in range(per_code)
    )  # fmt: skip
    counts = {code.value: per_code for code in codes}
    return ValidationReport("pets", "quality", None, 3, 60, 1, counts, tuple(findings))


def made_up(
    names: tuple[str, ...], *, per_code: int = 5, codes: tuple[FindingCode, ...] | None = None,
    noisy: bool = False, charts: bool = False, records: int = 1_000, drift: Drift | None = None,
    statistics: dict[str, Any] | None = None,
) -> gather.ReportData:  # fmt: skip
    """Returns a report of a dataset with some classes, which fills every part of the page.

    Args:
      names: Class names; keys, messages, places and settings use them too.
      per_code: Number of findings of each code.
      codes: Codes of the findings; some of all severities if none are given.
      noisy: Whether thumbnails have their maximum size.
      charts: Whether sizes of pictures are known, so that charts of them are drawn.
      records: Number of records of the largest class.
      drift: Result of `diff`.
      statistics: Content of `statistics.json`.
    """
    draw = partial(thumbnail, noisy=noisy)
    codes = codes or (
        FindingCode.BOX_RANGE, FindingCode.LABEL_TEXT, *WARNINGS, *sorted(QUALITY - WARNINGS)
    )  # fmt: skip
    longest = max(names, key=len, default="key")
    shards = {f"{split}-00000-of-00001.tfrecord" for split in ("train", "test")}
    validation = gather.select_findings(validation_of(per_code, codes, longest), "")
    seen = {place: draw(i) for i, place in enumerate(dict.fromkeys(gather.shown_places(validation, shards)))}
    counts = {name: max(1, records // (i + 1)) for i, name in enumerate(names)}
    written = sum(counts.values())
    quarantined = max(1, records // 50)
    # A dataset cannot have a class whose name is not Unicode.
    classes = {name.encode("utf-8", "replace").decode(): count for name, count in counts.items()}
    class_counts = {
        "train": {name: count - count // 5 for name, count in classes.items()},
        "test": {name: count // 5 for name, count in classes.items()},
    }
    ledger = {split: {"written": sum(counts.values())} for split, counts in class_counts.items()}
    ledger[NO_SPLIT] = {"quarantined": quarantined, "filtered": 5, "deduplicated": 2}
    dataset = dataset_of(
        class_counts,
        {"train": 8 * written // 10, "test": written // 5},
        formats={"train": {"jpg": 10}},
        ledger=ledger_json(ledger, {"quarantined": {longest: quarantined}, "filtered": {"dotfile": 5}}),
        settings={"resize": "224", "note": longest, **{name: name for name in names[:20]}},
        versions={"pillow": "12", "odd": longest},
    )
    sheets = [
        gather.ClassSheet(
            name,
            count,
            tuple(gather.Sample(RecordAt(f"samples of {i}", j), f"{name}/{j}.jpg") for j in range(6)),
        )
        for i, (name, count) in islice(enumerate(counts.items()), 48)
    ]
    sampled = [PictureSize(200 + 13 * i % 90, 150 + 7 * i % 110, 9_000 + 37 * i % 4_000) for i in range(120)]
    return gather.ReportData(
        name=names[0] if names else "pets",
        place=f"data/{names[0] if names else 'pets'}",
        drawn="2026-01-02 03:04 UTC",
        dataset=dataset,
        records=dataset.all_records,
        bytes=2 * 10**9,
        shards=2,
        checked=validation,
        measures=measure(statistics, sampled if charts else ()),
        sheets=tuple(sheets),
        pictures=seen | {one.at: draw(one.at.offset) for sheet in sheets for one in sheet.samples},
        quarantine=tuple(
            Quarantined(
                f"{name}/{i}", f"/gone/{name}", "decode", longest, longest, draw(i) if i < 9 else None
            )
            for i, name in enumerate((*names[:20], "a", "b"))
        ),
        drift=None if drift is None else drift.as_json(),
        left_out=(f"{longest} cannot be read.",),
    )  # fmt: skip
