"""Images in one folder and masks with the same names in another, for `--layout segmentation`."""

from __future__ import annotations

from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.pairs import MASK_SUFFIXES, PairedFolders, PairFormat
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    if probe.is_file or not settings.mask_dir or settings.record_layout.needs is not Needs.SEMANTIC:
        return []
    masks = settings.mask_dir.rstrip("/") or "/"
    return [PairedFolders(probe.root, masks, MASK_SUFFIXES, split_by_folder=True, has_masks=True)]


SOURCE = PairFormat(
    name="semantic_masks",
    title="segmentation",
    expected="it needs --mask_dir, the folder with a mask for each image, and --input with their folder",
    find=_find,
    parse=lambda data, folders: Annotations(),
    summarize=lambda probe, settings: f", masks in {printable(settings.mask_dir)}",
    provides=frozenset({Needs.SEMANTIC}),
    settings=frozenset({"mask_dir"}),
).source()
