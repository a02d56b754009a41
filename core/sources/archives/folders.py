"""Finds classes and splits in the folders of an archive, by the rules for folders on a disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from shardwright.core.sources.folder_tree import FolderTree, decide, split_of_folder


@dataclass(frozen=True)
class MemberFolders:
    """Meaning of the folders of an archive.

    Attributes:
      tree: Meaning of the folders around the archive and of those in it.
      above: Folders below the input that contain the archive.
      wrappers: Number of folders in the archive that have no meaning, because they are around all images.
      depth: Number of folders that make a class name (see `FolderTree.place`).
    """

    tree: FolderTree
    above: tuple[str, ...]
    wrappers: int
    depth: int

    def place(self, path: str) -> tuple[str, str]:
        """Returns (split, class) of a member; each is empty if no folder gives it."""
        return self.tree.place(self._inside(path), self.depth)

    def leaves_out(self, path: str) -> bool:
        """Returns whether a member is left out because it is outside the split folders."""
        return self.tree.leaves_out(self._inside(path))

    def _inside(self, path: str) -> str:
        parts = path.split("/")
        inside = parts[self.wrappers :] if len(parts) > self.wrappers else parts[-1:]
        return "/".join((*self.above, *inside))


def meaning_of_folders(
    where: str,
    folders: Iterable[str],
    above: tuple[str, ...],
    beside: Sequence[str],
    depth: int,
    setting: str,
    metadata: bool,
    classless: bool,
) -> MemberFolders:
    """Decides what the folders of an archive mean.

    Args:
      where: Name of the input, for messages.
      folders: Folders in the archive that hold images; empty for images in none.
      above: Folders below the input that contain the archive.
      beside: Folders at the top of the input that hold archives or images, if one contains the archive.
      depth: Number of folders that make a class name.
      setting: The setting `--folders`.
      metadata: Whether each image has a metadata file beside it.
      classless: Whether the layout stores no classes.

    Raises:
      UsageError: if the folders are ambiguous.
    """
    paths = [tuple(folder.split("/")) if folder else () for folder in folders]
    depths = [len(path) for path in paths]
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*paths))]
    # Skip a folder that contains everything, as long as all images are in folders inside it.
    wrappers = 0
    while wrappers < min([len(common), *(n - 1 for n in depths)]) and not split_of_folder(common[wrappers]):
        wrappers += 1
    tops: dict[str, bool] = {}
    named: Sequence[str] = ()
    if above:
        named = (*beside, above[0])
        for name in named if paths else ():
            tops[name] = max(depths) > 0 or len(above) > 1
    else:
        for path in paths:
            if len(path) > wrappers:
                tops[path[wrappers]] = tops.get(path[wrappers], False) or len(path) > wrappers + 1
    tree = decide(tops, setting, where, named, metadata, classless)
    # Keep enough folders for a class name, if any image is in that many.
    kept = depth - len(above) + (1 if above and tree.splits else 0)
    if kept > 1 and (above or not tree.splits):
        wrappers = min(wrappers, max(max(depths, default=-1) - kept, 0))
    return MemberFolders(tree, above, wrappers, depth)
