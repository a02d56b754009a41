"""Drawing of where every image went: bands from all listed files to their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: Largest number of bands of one outcome. The smallest are combined into one.
_MAX_BANDS = 7
#: Heights in pixels: of a band's two lines of text, of all bars together, and of the thinnest bar.
_SLOT, _TALL, _THIN = 44, 220, 2.0
#: Width of the drawing in its own units. The page stretches it to the available width.
BANDS_WIDTH = 100


class Node(NamedTuple):
    """An outcome of some of the listed files.

    Attributes:
      name: Name of the split or reason.
      outcome: written, quarantined, filtered or deduplicated.
      files: Number of files.
    """

    name: str
    outcome: str
    files: int


class Band(NamedTuple):
    """A drawn band.

    Attributes:
      node: Node that the band leads to.
      path: Path of the band in SVG, `BANDS_WIDTH` wide.
      slot: Height in pixels of the space for its end and its text.
      height: Height in pixels of its end, which is in the middle of the slot.
    """

    node: Node
    path: str
    slot: float
    height: float


class Flow(NamedTuple):
    """A drawing: a bar on the left, bands, and bars with texts on the right.

    Heights are in pixels, so that text is never scaled. The bands take the remaining width.

    Attributes:
      height: Height of the drawing.
      top: Top of the bar on the left.
      source_height: Height of the bar on the left.
      bands: Bands from top to bottom.
    """

    height: float
    top: float
    source_height: float
    bands: tuple[Band, ...]


def flow_nodes(ledger: Mapping[str, Any], order: Sequence[str] = ()) -> list[Node]:
    """Returns the outcomes of the listed files: written per split, then left out per reason.

    Args:
      ledger: Ledger of `dataset.json`.
      order: Order of the splits.
    """
    splits = ledger.get("splits", {})
    splits = {name: splits[name] for name in [*(name for name in order if name in splits), *splits]}
    groups = {
        "written": {name: counts["written"] for name, counts in splits.items() if counts["written"]},
        **{name: dict(ledger.get("reasons", {}).get(name, {})) for name in ("quarantined", "filtered")},
        "deduplicated": {"copies of another": ledger.get("deduplicated", 0)},
    }
    nodes = []
    for outcome, counts in groups.items():
        kept = [Node(str(name), outcome, int(count)) for name, count in counts.items() if count]
        if outcome != "written":
            kept.sort(key=lambda node: (-node.files, node.name))
        if len(kept) > _MAX_BANDS:
            rest = kept[_MAX_BANDS - 1 :]
            others = Node(f"{len(rest)} others", outcome, sum(node.files for node in rest))
            kept = [*kept[: _MAX_BANDS - 1], others]
        nodes += kept
    return nodes


def draw_flow(nodes: Sequence[Node]) -> Flow | None:
    """Computes the positions of the bands; None if nothing was listed.

    Every band is visible, however few files it has: bars are at least 2 pixels high.
    """
    total = sum(node.files for node in nodes)
    if not total:
        return None
    heights = [max(_THIN, _TALL * node.files / total) for node in nodes]
    source_height = sum(heights)
    slots = [max(_SLOT, height + 10) for height in heights]
    height = sum(slots)
    top = (height - source_height) / 2
    bands, left, slot_top, middle = [], top, 0.0, BANDS_WIDTH // 2
    for node, thickness, slot in zip(nodes, heights, slots, strict=True):
        right = slot_top + (slot - thickness) / 2
        path = (
            f"M0 {left:.1f}C{middle} {left:.1f} {middle} {right:.1f} {BANDS_WIDTH} {right:.1f}"
            f"V{right + thickness:.1f}C{middle} {right + thickness:.1f} {middle} {left + thickness:.1f} "
            f"0 {left + thickness:.1f}Z"
        )
        bands.append(Band(node, path, round(slot, 1), round(thickness, 1)))
        left += thickness
        slot_top += slot
    return Flow(round(height, 1), round(top, 1), round(source_height, 1), tuple(bands))
