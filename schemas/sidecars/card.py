"""`README.md`: the dataset card, for people and for the Hugging Face hub, which reads the YAML at its top.

Its `configs` name the shards as the only data. The hub's own library, `datasets`, does not read TFRecords, so
it says that it finds no data that it supports. Without `configs` it would load the ledgers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shardwright.schemas.dataset import SAMPLES_JPG, Dataset, sample_types, stored_formats
from shardwright.schemas.feature_roles import CLASS_ROLES, FeatureRole
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.sidecars.croissant import meaning_of, pattern_of
from shardwright.schemas.sidecars.tfds import is_readable
from shardwright.schemas.units import counted, format_size, shape_text

#: Largest number of classes in the table; `labels.txt` lists all.
MAX_CLASSES = 200
#: Licenses that the hub knows by name; most are SPDX identifiers in lower case.
HUB_LICENSES = frozenset(
    (
        "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause",
        "bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0",
        "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0",
        "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0",
        "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0",
        "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "gfdl", "gpl", "gpl-2.0", "gpl-3.0",
        "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "lppl-1.3c", "mit", "mpl-2.0", "ms-pl", "ncsa", "odbl",
        "odc-by", "ofl-1.1", "openrail", "osl-3.0", "pddl", "postgresql", "unknown", "unlicense", "wtfpl",
        "zlib",
    )
)  # fmt: skip
_SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)  # fmt: skip
_TASKS = {
    "image-classification": set(CLASS_ROLES),
    "object-detection": {FeatureRole.BOXES, FeatureRole.BOX_XMIN},
    "image-segmentation": {
        FeatureRole.OBJECT_MASK, FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY,
        FeatureRole.PANOPTIC_INSTANCE,
    },
}  # fmt: skip
_SAMPLES = (
    f"![Images of the dataset, each with its class]({SAMPLES_JPG})",
    "",
    "`shardwright report` writes `report.html`, which shows more images of each class.",
)
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")


def readme_md(dataset: Dataset) -> str:
    """Returns the card of a dataset."""
    provenance = dataset.provenance
    return "\n".join(
        (
            *("---", *_front_matter(dataset), "---", ""),
            *(f"# {_plain(dataset.name)}", ""),
            *((provenance.description.strip(), "") if provenance.description else ()),
            *(_summary(dataset), ""),
            *_origin(provenance),
            *(("## Samples", "", *_SAMPLES, "") if SAMPLES_JPG in dataset.sidecars else ()),
            *("## Splits", "", *_splits(dataset), ""),
            *(("## Classes", "", *_classes(dataset), "") if dataset.classes else ()),
            *("## Features of a record", "", *_features(dataset), ""),
            *("## How to read it", "", *_reading(dataset), ""),
            *("## How it was made", "", *_making(dataset), ""),
            *(("## Citation", "", *_fenced(provenance.citation.strip()), "") if provenance.citation else ()),
        )
    )


def _front_matter(dataset: Dataset) -> Iterator[str]:
    """Yields the YAML lines."""
    yield f"pretty_name: {_quoted(dataset.name)}"
    yield from _license_lines(dataset.provenance)
    if tasks := _tasks(dataset):
        yield from ("task_categories:", *(f"- {task}" for task in tasks))
    yield from ("size_categories:", f"- {size_category(dataset.all_records)}")
    yield from ("tags:", "- image", "- tfrecord")
    yield from ("configs:", "- config_name: default", "  data_files:")
    for split, shards in dataset.splits.items():
        if shards:
            yield from (f"  - split: {_quoted(split)}", f"    path: {_quoted(pattern_of(shards[0].file))}")


def _quoted(text: str) -> str:
    """Returns a text in YAML's double quotes."""

    def escaped(character: str) -> str:
        if character in '\\"':
            return f"\\{character}"
        return character if character.isprintable() else f"\\U{ord(character):08x}"

    return f'"{"".join(map(escaped, text))}"'


def _license_lines(provenance: Provenance) -> Iterator[str]:
    if not provenance.license:
        return
    if provenance.license_id in HUB_LICENSES:
        yield f"license: {provenance.license_id}"
        return
    yield "license: other"
    yield f"license_name: {_quoted(provenance.license)}"
    if provenance.license_url:
        yield f"license_link: {_quoted(provenance.license_url)}"


def _tasks(dataset: Dataset) -> list[str]:
    """Returns the tasks for which the records have an answer."""
    roles = {spec.fill for spec in dataset.features}
    return [task for task, answers in _TASKS.items() if dataset.classes and not answers.isdisjoint(roles)]


def size_category(records: int) -> str:
    """Returns the hub's word for a number of records."""
    return next((word for limit, word in _SIZES if records < limit), "n>1T")


def _summary(dataset: Dataset) -> str:
    classes = f" of {counted(len(dataset.classes), 'class')}" if dataset.classes else ""
    return (
        f"{counted(dataset.all_records, 'image')}{classes}, each in a `tf.train.Example` record of layout "
        f"{_code(dataset.layout)}, in TFRecord files."
    )


def _origin(provenance: Provenance) -> Iterator[str]:
    """Yields a list of what the user states in a few words."""
    creators = ", ".join(_plain(creator.name) for creator in provenance.creators)
    license_text = f"<{provenance.license_url}>" if provenance.license_url else _plain(provenance.license)
    rows = (
        ("License", license_text),
        ("Created by", creators),
        ("Home page", f"<{provenance.url}>" if provenance.url else ""),
        ("Published", provenance.date_published),
    )
    lines = [f"- {name}: {text}" for name, text in rows if text]
    yield from (*lines, "") if lines else ()


def _splits(dataset: Dataset) -> Iterator[str]:
    rows = (
        (_code(split), f"{dataset.records(split):,}", f"{len(shards):,}", format_size(dataset.size(split)))
        for split, shards in dataset.splits.items()
    )
    return _table(("split", "images", "shards", "size"), rows)


def _classes(dataset: Dataset) -> Iterator[str]:
    """Yields a table of the classes: id, name, and the number of records with it in each split."""
    texts = dict(zip(dataset.labels, dataset.plan.label_texts))
    classes = [*dataset.classes.items()][:MAX_CLASSES]
    counts = [dataset.class_counts.get(split, {}) for split in dataset.splits]
    rows = (
        (
            str(number),
            _plain(name if texts.get(name, name) == name else f"{name} ({texts[name]})"),
            *(f"{count.get(name, 0):,}" for count in counts),
        )
        for number, name in classes
    )
    yield from _table(("id", "class", *map(_code, dataset.splits)), rows)
    if len(classes) < len(dataset.classes):
        more = counted(len(dataset.classes) - len(classes), "more class", "more classes")
        yield from ("", f"`labels.txt` lists {more}.")


def _features(dataset: Dataset) -> Iterator[str]:
    rows = (
        (_code(spec.name), spec.type.value, shape_text(spec.value_shape), _plain(meaning_of(spec, dataset)))
        for spec in dataset.features
    )
    return _table(("feature", "type", "shape", "meaning"), rows)


def _reading(dataset: Dataset) -> Iterator[str]:
    yield "`parse.py` reads it with TensorFlow alone: `import parse` in this directory, `parse.load(split)`."
    if is_readable(dataset):
        yield "TensorFlow Datasets reads it, too:"
        code = ("import tensorflow_datasets as tfds", "", 'builder = tfds.builder_from_directory(".")')
        yield from ("", "```python", *code, "datasets = builder.as_dataset()", "```")
    yield ""
    yield "`croissant.json` describes it for catalogues."
    if SAMPLES_JPG not in dataset.sidecars:
        yield "`shardwright report` writes `report.html`, which shows samples of its images."


def _making(dataset: Dataset) -> Iterator[str]:
    settings, ledger = dataset.plan.settings, dataset.ledger
    formats = ", ".join(stored_formats(dataset))
    resized = (
        f"fitted to {settings['resize']} ({settings['fit']})" if settings.get("resize") else "not resized"
    )
    yield f"- Images: stored as {formats}, {resized}."
    if dataset.dtypes:
        types = (f"{counted(dataset.dtypes[name], 'image')} of {name}" for name in sample_types(dataset))
        yield f"- Samples: {', '.join(types)}."
    counts = (
        f"{ledger.get(name, 0):,} {name}" for name in ("written", "quarantined", "filtered", "deduplicated")
    )
    yield f"- Files: {ledger.get('listed', 0):,} listed, of which {', '.join(counts)}."
    yield f"- Software: shardwright {_plain(dataset.versions.get('shardwright', ''))}."
    yield f"- Fingerprint: `{dataset.fingerprint}`. `dataset.json` has all settings and checksums."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = [*head]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _plain(text: str) -> str:
    """Returns a text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\1", escape_controls(text))


def _code(text: str) -> str:
    """Returns a name in code, also in a table; a name that cannot be written so is plain."""
    return _plain(text) if "`" in text or "|" in text or not text.isprintable() else f"`{text}`"


def _fenced(text: str) -> Iterator[str]:
    """Yields a text as a block of code, whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    yield from (fence, *text.splitlines(), fence)
