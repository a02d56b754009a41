"""The picture of where every image went: bands from all that was listed to what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: Bands of one outcome that are drawn; the smallest are drawn as one.
_MAX_BANDS = 7
#: Pixels that a band's two lines of text need, the height of all bars together, and that of the thinnest bar.
_SLOT, _TALL, _THIN = 44, 220, 2.0
#: Width of the drawing in its own units; the page stretches it to the width that there is.
BANDS_WIDTH = 100


class Node(NamedTuple):
    """Where some of the listed files went.

    Attributes:
      name: of the split or reason.
      outcome: written, quarantined, filtered or deduplicated.
      files: how many of them.
    """

    name: str
    outcome: str
    files: int


class Band(NamedTuple):
    """A drawn band.

    Attributes:
      node: what it stands for.
      path: the band in SVG, `BANDS_WIDTH` wide.
      slot: pixels of height for its end and its text.
      height: pixels of height of its end, which is in the middle of the slot.
    """

    node: Node
    path: str
    slot: float
    height: float


class Flow(NamedTuple):
    """A drawing: a bar on the left, bands, and bars with texts on the right.

    The heights are pixels, so that texts are never scaled; the bands take the width that is left.

    Attributes:
      height: of the drawing.
      top: where the bar on the left begins.
      source_height: height of the bar on the left.
      bands: from top to bottom.
    """

    height: float
    top: float
    source_height: float
    bands: tuple[Band, ...]


def flow_nodes(ledger: Mapping[str, Any], order: Sequence[str] = ()) -> list[Node]:
    """Returns what became of the listed files: written per split, then what was left out per reason.

    Args:
      ledger: of `dataset.json`.
      order: in which the splits are drawn.
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
    """Lays the bands out; None if nothing was listed.

    Every band can be seen, however few files it stands for: bars are at least 2 pixels high.
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
