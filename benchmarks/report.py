"""Prints the results of the harness as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def spread(values: Sequence[float], digits: int) -> str:
    """Formats the median of some values, with their range in brackets.

    Args:
      values: at least one value.
      digits: number of digits after the decimal point.

    Returns:
      A text such as `3.10 (3.02-3.20)`.
    """
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def _seconds(entry: dict[str, Any]) -> list[float]:
    return [run["seconds"] for run in entry["runs"]]


def _row(entry: dict[str, Any], images: int, own: float | None) -> str:
    if entry["problem"]:
        # Medians of the rounds before a failure would look like a result.
        return f"| {entry['name']} | {entry['problem']} | | | | |"
    middle = statistics.median(_seconds(entry))
    largest = statistics.median(run["peak_mb"] for run in entry["runs"])
    tree = statistics.median(run["tree_mb"] for run in entry["runs"])
    ratio = f"{middle / own:.2f}" if own else ""
    return (
        f"| {entry['name']} | {spread(_seconds(entry), 2)} | {largest:.0f} | {tree:.0f} "
        f"| {images / middle:.0f} | {ratio} |"
    )


def _print_machine(results: dict[str, Any]) -> None:
    for name, value in results["machine"].items():
        print(f"- {name}: {value}")
    seen: list[dict[str, str]] = []
    for entry in results["competitors"]:
        versions = entry["versions"]
        if versions and versions not in seen:
            seen.append(versions)
            users = [e["name"] for e in results["competitors"] if e["versions"] == versions]
            listed = ", ".join(f"{name} {version}" for name, version in versions.items())
            print(f"- {', '.join(users)}: {listed}")
    print()


def _print_limit(results: dict[str, Any]) -> float | None:
    limits = results["codec_limits"]
    if not limits:
        return None
    print("\n| codec path, two threads in memory | images/s | PSNR mean | PSNR min |")
    print("|---|---:|---:|---:|")
    for paths in zip(*(limit["paths"] for limit in limits), strict=True):
        speeds = [path["images_per_second"] for path in paths]
        first = paths[0]
        quality = f"{first['psnr_mean']:.1f} | {first['psnr_min']:.1f}"
        print(f"| {first['name']} | {spread(speeds, 0)} | {quality} |")
    values = [limit["limit"]["images_per_second"] for limit in limits]
    names = sorted({limit["limit"]["name"] for limit in limits})
    print(f"\nCodec limit: {spread(values, 0)} images/s ({'; '.join(names)})")
    return float(statistics.median(values))


def print_report(results: dict[str, Any]) -> None:
    """Prints the machine, the table of the competitors, the codec limit and the steady state.

    Args:
      results: all raw numbers that the harness collected.
    """
    images = results["images"]
    print(f"{images} images, {results['rounds']} round(s), medians (least-most)")
    if results["rounds"] < 3:
        print("Fewer than 3 rounds: a smoke test, no measurement.")
    print()
    _print_machine(results)
    good = {entry["name"]: entry for entry in results["competitors"] if not entry["problem"]}
    shardwright = good.get("shardwright")
    own = statistics.median(_seconds(shardwright)) if shardwright else None
    print(
        "| competitor | seconds | peak MB, largest process | peak MB, all processes "
        "| images/s | time / shardwright's |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for entry in results["competitors"]:
        print(_row(entry, images, own))
    limit = _print_limit(results)
    if shardwright is None:
        return
    steady = [run["convert_seconds"] for run in shardwright["runs"]]
    if not steady or any(value is None for value in steady):
        print("\nSteady state: run.json names no convert_seconds.")
        return
    speed = statistics.median(images / value for value in steady)
    print(f"\nSteady state of shardwright, without start-up: {speed:.0f} images/s", end="")
    print(f", {speed / limit:.2f} of the codec limit" if limit else "")
