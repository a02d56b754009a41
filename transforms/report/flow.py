"""The picture of where every image went: bands from all that was listed to what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: Bands of one outcome that are drawn; the smallest are drawn as one.
_MAX_BANDS = 7
_BAR = 14
_TOP = 34
_SLOT, _TALL = 40, 220
_THIN = 2.0


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
      path: of the band, in SVG.
      y: where its end begins.
      height: of its end.
      label_y: the base line of its name.
    """

    node: Node
    path: str
    y: float
    height: float
    label_y: float


class Flow(NamedTuple):
    """A drawing.

    Attributes:
      width: of the drawing.
      height: of the drawing.
      bar: width of the bars.
      top: where the bar on the left begins.
      source_height: of the bar on the left.
      end_x: where the bars on the right begin.
      label_x: where the names begin.
      label_letters: that fit in a name.
      bands: from top to bottom.
    """

    width: int
    height: float
    bar: int
    top: float
    source_height: float
    end_x: float
    label_x: float
    label_letters: int
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


def draw_flow(nodes: Sequence[Node], width: int) -> Flow | None:
    """Lays the bands out for a drawing of some width; None if nothing was listed.

    Every band can be seen, however few files it stands for: bars are at least 2 units high.
    """
    total = sum(node.files for node in nodes)
    if not total:
        return None
    narrow = width < 500
    end_x = width * (0.34 if narrow else 0.52)
    heights = [max(_THIN, _TALL * node.files / total) for node in nodes]
    source_height = sum(heights)
    slots = [max(_SLOT, height + 10) for height in heights]
    height = sum(slots)
    top = _TOP + max(0.0, (height - source_height) / 2)
    bands, left, right = [], top, float(_TOP)
    for node, thickness, slot in zip(nodes, heights, slots):
        y = right + (slot - thickness) / 2
        middle = (_BAR + end_x) / 2
        path = (
            f"M{_BAR} {left:.1f}C{middle:.1f} {left:.1f} {middle:.1f} {y:.1f} {end_x:.1f} {y:.1f}"
            f"V{y + thickness:.1f}C{middle:.1f} {y + thickness:.1f} {middle:.1f} {left + thickness:.1f} "
            f"{_BAR} {left + thickness:.1f}Z"
        )
        bands.append(Band(node, path, round(y, 1), round(thickness, 1), round(right + slot / 2, 1)))
        left += thickness
        right += slot
    label_x = end_x + _BAR + 10
    letters = int((width - label_x) / 8.6)
    return Flow(
        width, round(_TOP + height + 4, 1), _BAR, round(top, 1), round(source_height, 1), round(end_x, 1),
        round(label_x, 1), letters, tuple(bands),
    )  # fmt: skip
