"""Computes the needs of a large job on Dataflow and Google Cloud Storage from stated inputs.

Measured inputs come from `references.py` and docs/BENCHMARKS.md. Assumed inputs are marked: replace them by
your own. There are no prices, because they change.

    python benchmarks/job_model.py 1e9 --given source=200000
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

SOURCE_BYTES = 110_000
RECORD_BYTES = 30_000
SHARD_BYTES = 128_000_000

#: Name of an input -> value, meaning, origin.
INPUTS = {
    "source": (SOURCE_BYTES, "bytes per source", "assumed: JPEGs of about 500x400"),
    "record": (RECORD_BYTES, "bytes per record", "assumed: 224x224 JPEG, quality 95"),
    "shard": (SHARD_BYTES, "bytes per shard", "the default of --shard_size"),
    "classes": (1000, "classes", "assumed"),
    "images_s": (950, "images/s per core", "measured: BENCHMARKS.md"),
    "list_us": (18, "core microseconds to list an object", "measured without a network"),
    "plan_us": (53, "core microseconds to plan and group a reference", "measured with 99,999 shards"),
    "listed": (24, "bytes per reference, in listing order", "measured"),
    "grouped": (95, "bytes per reference, grouped by shard", "measured with 99,999 shards"),
    "commit": (11_000, "bytes of memory per shard in the last step", "measured with 4,000 shards"),
    "commit_class": (
        110,
        "bytes of memory per class of a shard in the last step",
        "measured with 1,000 classes",
    ),
    "page": (1000, "objects per list request", "assumed: the default of the JSON API"),
    "page_s": (0.3, "seconds per list request", "assumed"),
    "reads_s": (5000, "reads/s that a new bucket allows", "Cloud Storage, request rate guidelines"),
    "egress": (25_000_000_000, "bytes/s from storage to a project's workers", "assumed: 200 Gbit/s, a quota"),
    "cores": (1000, "vCPUs", "a choice"),
}
#: Maximum number of shards in `dataset.json`.
MAX_SHARDS = 99_999
#: Number of side files of a dataset, and of files per shard (the shard and its ledger).
_SIDE_FILES, _FILES_PER_SHARD = 9, 2


def compute(images: int, given: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Computes the needs of a number of images.

    Args:
      images: Number of images.
      given: Inputs that differ from `INPUTS`.

    Returns:
      Values by name, each with its formula in words.
    """
    of = {name: value for name, (value, _, _) in INPUTS.items()} | dict(given)
    shards = min(MAX_SHARDS, max(-(-images * of["record"] // of["shard"]), -(-images // 100_000)))
    core_s = images / of["images_s"]
    listed_s = max(of["page_s"] / of["page"], of["list_us"] / 1e6)
    return {
        "shards": (shards, "images * record / shard, at most 99,999"),
        "records per shard": (images / shards, "images / shards"),
        "MB per shard": (images * of["record"] / shards / 1e6, "images * record / shards"),
        "vCPU-hours to convert": (core_s / 3600, "images / images_s"),
        "vCPU-hours to plan and group": (images * of["plan_us"] / 3.6e9, "images * plan_us"),
        "vCPU-hours to list": (images * of["list_us"] / 3.6e9, "images * list_us"),
        "GB of references between stages": (
            images * (of["listed"] + 2 * of["grouped"]) / 1e9,
            "images * (listed + 2 * grouped)",
        ),
        "TB read": (images * of["source"] / 1e12, "images * source"),
        "TB written": (images * of["record"] / 1e12, "images * record"),
        "TB read back to verify": (images * of["record"] / 1e12, "images * record; 0 with --verify none"),
        "list requests (class A)": (images / of["page"], "images / page"),
        "uploads (class A)": (_FILES_PER_SHARD * shards + _SIDE_FILES, "2 * shards + side files"),
        "reads (class B)": (images + shards, "images + shards"),
        "hours to list, each class on a vCPU": (
            images / min(of["classes"], of["cores"]) * listed_s / 3600,
            "images / the lower of classes and cores * the longer of page_s / page and list_us",
        ),
        "hours to list, one class folder": (
            images * listed_s / 3600,
            "images * the longer of page_s / page and list_us",
        ),
        "hours to convert with these vCPUs": (core_s / of["cores"] / 3600, "images / images_s / cores"),
        "hours to read at that quota": (
            images * of["source"] / of["egress"] / 3600,
            "images * source / egress",
        ),
        "vCPUs that a new bucket can feed": (of["reads_s"] / of["images_s"], "reads_s / images_s"),
        "GB of memory to commit": (
            shards * (of["commit"] + of["commit_class"] * min(of["classes"], images / shards)) / 1e9,
            "shards * (commit + commit_class * the lower of classes and records per shard)",
        ),
    }


def print_model(images: int, given: Mapping[str, float]) -> None:
    """Prints inputs and results as tables.

    Args:
      images: Number of images.
      given: Inputs that differ from `INPUTS`.
    """
    print("| input | | what | from |\n|---|---:|---|---|")
    for name, (value, what, source) in INPUTS.items():
        if name in given:
            value, source = given[name], "given"
        print(f"| `{name}` | {value:,} | {what} | {source} |")
    print(f"\n| for {images:,} images | | formula |\n|---|---:|---|")
    for name, (value, formula) in compute(images, given).items():
        print(f"| {name} | {value:,.{0 if value >= 10 else 1 if value >= 1 else 2}f} | {formula} |")


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("images", type=float, help="number of images")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=VALUE", help="an input of the model; repeatable"
    )
    options = parser.parse_args()
    given = {name: float(value) for name, _, value in (item.partition("=") for item in options.given)}
    if unknown := given.keys() - INPUTS.keys():
        parser.error(f"the model has no input {', '.join(sorted(unknown))}")
    print_model(round(options.images), given)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
