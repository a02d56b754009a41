"""`README.md`: the dataset card, for people and for the Hugging Face hub, which reads the YAML at its top.

Its `configs` name the shards as the only data. The hub's own library, `datasets`, does not read TFRecords, so
it says that it finds no data that it supports. Without `configs` it would load the ledgers.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from shardwright.schemas.dataset import SAMPLES_JPG, Dataset, sample_types, stored_formats
from shardwright.schemas.feature_roles import CLASS_ROLES, FeatureRole
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.sidecars.croissant import meaning_of, pattern_of
from shardwright.schemas.sidecars.tfds import is_readable
from shardwright.schemas.templates import fill_in
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
_TEMPLATE = Path(__file__).with_name("README.md.jinja")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")


def readme_md(dataset: Dataset) -> str:
    """Returns the card of a dataset."""
    settings, origin = dataset.plan.settings, dataset.provenance
    texts = dict(zip(dataset.labels, dataset.plan.label_texts))
    resized = f"fitted to {settings['resize']} ({settings['fit']})" if settings.get("resize") else ""
    return fill_in(
        _TEMPLATE,
        {
            "yaml": _quoted,
            "plain": _plain,
            "code": _code,
            "counted": counted,
            "number": lambda count: f"{count:,}",
            "size": format_size,
            "shape": shape_text,
            "meaning": lambda spec: meaning_of(spec, dataset),
        },
        dataset=dataset,
        origin=origin,
        hub_licenses=HUB_LICENSES,
        tasks=_tasks(dataset),
        size_category=size_category(dataset.all_records),
        patterns={name: pattern_of(shards[0].file) for name, shards in dataset.splits.items() if shards},
        statements=_statements(origin),
        samples=SAMPLES_JPG,
        classes={
            number: name if texts.get(name, name) == name else f"{name} ({texts[name]})"
            for number, name in islice(dataset.classes.items(), MAX_CLASSES)
        },
        tfds_reads_it=is_readable(dataset),
        formats=stored_formats(dataset),
        resized=resized or "not resized",
        types=[
            f"{counted(dataset.dtypes[name], 'image')} of {name}"
            for name in sample_types(dataset)
            if name in dataset.dtypes
        ],
        citation=origin.citation.strip().splitlines(),
        fence=_fence(origin.citation),
    )


def _quoted(text: str) -> str:
    """Returns a text in YAML's double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(('"', *(one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped), '"'))


def _tasks(dataset: Dataset) -> list[str]:
    """Returns the tasks for which the records have an answer."""
    roles = {spec.fill for spec in dataset.features}
    return [task for task, answers in _TASKS.items() if dataset.classes and not answers.isdisjoint(roles)]


def size_category(records: int) -> str:
    """Returns the hub's word for a number of records."""
    return next((word for limit, word in _SIZES if records < limit), "n>1T")


def _statements(origin: Provenance) -> dict[str, str]:
    """Returns what the user states about the dataset in a few words, by its name."""
    texts = {
        "License": f"<{origin.license_url}>" if origin.license_url else _plain(origin.license),
        "Created by": ", ".join(_plain(creator.name) for creator in origin.creators),
        "Home page": f"<{origin.url}>" if origin.url else "",
        "Published": origin.date_published,
    }
    return {name: text for name, text in texts.items() if text}


def _plain(text: str) -> str:
    """Returns a text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\1", escape_controls(text))


def _code(text: str) -> str:
    """Returns a name in code, also in a table; a name that cannot be written so is plain."""
    return _plain(text) if "`" in text or "|" in text or not text.isprintable() else f"`{text}`"


def _fence(text: str) -> str:
    """Returns what begins and ends a text as a block of code: longer than any such mark in the text."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
