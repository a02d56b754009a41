"""The objects of a dataset for the page: their number in each class and image, and the sizes of boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from shardwright.core.report.charts import Chart, histogram
from shardwright.core.report.data import ObjectCounts, ReportData
from shardwright.core.report.measures import all_pictures, histogram_of
from shardwright.core.report.samples import MAX_LEDGERS, MAX_LINES, ledger_entries, ranked
from shardwright.core.report.view import ClassRow, class_rows
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift_tables import as_mapping
from shardwright.schemas.feature_roles import FeatureRole

#: Up to this many bins each have one number of objects; above, a bin has several.
_MOST_BINS = 24


def count_objects(directory: str, dataset: Dataset) -> ObjectCounts | None:
    """Counts the objects of the images from the ledgers; None if the records have no boxes.

    Args:
      directory: The dataset directory.
      dataset: The dataset.
    """
    if not any(spec.fill in (FeatureRole.BOX_XMIN, FeatureRole.BOXES) for spec in dataset.features):
        return None
    entries = (
        entry
        for split, number, _, _ in islice(dataset.filled_shards_in_turn(), MAX_LEDGERS)
        for entry in ledger_entries(directory, dataset, split, number)
        if entry.outcome == Outcome.WRITTEN
    )
    images: Counter[int] = Counter()
    lost = 0
    for entry in islice(entries, MAX_LINES):
        counts = {name: n for name, n in as_mapping(entry.boxes).items() if isinstance(n, int)}
        images[counts.get("written", 0)] += 1
        lost += counts.get("dropped", 0) + counts.get("vanished", 0)
    return ObjectCounts(images, lost) if images else None


@dataclass(frozen=True)
class ObjectsView:
    """The objects of a dataset as the page shows them.

    Attributes:
      counts: Objects in each image, from the ledgers. None if they are not known.
      classes: Rows with the number of objects of each class. Empty if they were not measured.
      charts: Charts of the objects in an image and of the sizes of boxes.
    """

    counts: ObjectCounts | None
    classes: tuple[ClassRow, ...]
    charts: tuple[Chart, ...]


def objects_view(data: ReportData) -> ObjectsView | None:
    """Returns what the page says about objects; None if nothing is known about them."""
    measured = as_mapping(all_pictures(data.statistics).get("boxes"))
    if not measured and (data.objects is None or not data.objects.objects):
        return None
    charts = []
    if data.objects is not None:
        charts.append(_per_image(data.objects))
    elif found := histogram_of(as_mapping(measured.get("per_image"))):
        charts.append(histogram("box-per_image", "Objects in an image", "objects", *found))
    for name, title, label in (
        ("width", "Width of a box", "share of the image's width"),
        ("height", "Height of a box", "share of the image's height"),
        ("area", "Area of a box", "share of the image"),
    ):
        if found := histogram_of(as_mapping(measured.get(name))):
            charts.append(histogram(f"box-{name}", title, label, *found, what="boxes"))
    return ObjectsView(data.objects, _classes(data), tuple(charts))


def _per_image(counts: ObjectCounts) -> Chart:
    """Draws how many images have how many objects."""
    step = -(-(max(counts.images) + 1) // _MOST_BINS)
    bins = [0] * (max(counts.images) // step + 1)
    for number, images in counts.images.items():
        bins[number // step] += images
    edges = [place * step for place in range(len(bins) + 1)]
    return histogram("box-per_image", "Objects in an image", "objects", edges, bins, whole=True)


def _classes(data: ReportData) -> tuple[ClassRow, ...]:
    """Returns the number of objects of each class in all splits, the largest first."""
    document = as_mapping(data.statistics)
    parts = [as_mapping(document.get("total"))]
    if not parts[0]:
        parts = [as_mapping(part) for part in as_mapping(document.get("splits")).values()]
    totals: Counter[str] = Counter()
    for part in parts:
        found: Mapping[str, object] = as_mapping(as_mapping(part.get("objects")).get("classes"))
        totals.update({str(name): count for name, count in found.items() if isinstance(count, int)})
    return class_rows(ranked(totals), {"objects": totals}) if totals else ()
