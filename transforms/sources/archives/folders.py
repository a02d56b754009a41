"""Finds classes and splits in the folders of an archive, by the rules for folders on a disk."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.transforms.sources.folder_tree import (
    AUTO,
    FolderTree,
    TopFolders,
    decide,
    split_of_folder,
)


class MemberFolders:
    """Collects the paths of all images in an archive, then gives the class and split of each member.

    Args:
      where: Name of the archive, for messages.
      above: Folders below the input that contain the archive.
      beside: Folders at the top of the input that hold archives or images, if one contains the archive.
      depth: Number of folders that make a class name (see `FolderTree.place`).
      folders: The setting `--folders`.
      classless: Whether the layout stores no classes.
    """

    def __init__(
        self,
        where: str = "",
        above: Sequence[str] = (),
        beside: Sequence[str] = (),
        depth: int = 1,
        folders: str = AUTO,
        classless: bool = False,
    ) -> None:
        self._where, self._above, self._beside = where, tuple(above), tuple(beside)
        self._depth, self._folders, self._classless = depth, folders, classless
        self._common: tuple[str, ...] = ()  # folders that contain all images
        self._tops = TopFolders()  # inside the common folders
        self._min_depth = self._max_depth = -1  # of the folders with images
        self._wrappers = 0
        self._tree = FolderTree()

    def add(self, path: str) -> None:
        """Adds the path of an image that is not hidden."""
        folders = tuple(path.split("/")[:-1])
        if self._min_depth < 0:
            self._common = folders
            self._min_depth = self._max_depth = len(folders)
            return
        shared = 0
        for ours, theirs in zip(self._common, folders):
            if ours != theirs:
                break
            shared += 1
        if shared < len(self._common):  # until now, all images were in one folder at this level
            self._tops = TopFolders()
            self._tops.add(self._common[shared], nested=self._max_depth > shared + 1)
            self._common = self._common[:shared]
        if shared < len(folders):
            self._tops.add(folders[shared], nested=len(folders) > shared + 1)
        self._min_depth = min(self._min_depth, len(folders))
        self._max_depth = max(self._max_depth, len(folders))

    def settle(self, metadata: bool = False) -> None:
        """Decides what the folders mean, after all images were added.

        Args:
          metadata: Whether each image has a metadata file beside it.

        Raises:
          UsageError: if the folders are ambiguous.
        """
        common = self._common
        depth = 0
        # Skip a folder that contains everything, as long as all images are in folders inside it.
        while depth < min(len(common), self._min_depth - 1) and not split_of_folder(common[depth]):
            depth += 1
        tops, named = self._tops, list(self._tops.splits)
        if self._above:
            nested = self._max_depth > 0 or len(self._above) > 1
            named = [*self._beside, self._above[0]]
            tops = TopFolders()
            if self._max_depth >= 0:
                for name in named:
                    tops.add(name, nested)
        elif depth < len(common):
            tops = TopFolders()
            tops.add(common[depth], nested=self._max_depth > depth + 1)
        self._tree = decide(tops, self._folders, self._where, named, metadata, self._classless)
        self._wrappers = depth
        # Keep enough folders for a class name, if any image is in that many.
        wanted = self._depth - len(self._above) + (1 if self._above and self._tree.splits else 0)
        if wanted > 1 and (self._above or not self._tree.splits):
            self._wrappers = min(depth, max(self._max_depth - wanted, 0))

    @property
    def names_classes(self) -> bool:
        """Returns whether folders give the classes."""
        return self._tree.names_classes

    def place(self, path: str) -> tuple[str, str]:
        """Returns (split, class) of a member; each is empty if no folder gives it."""
        return self._tree.place(self._inside(path), self._depth)

    def leaves_out(self, path: str) -> bool:
        """Returns whether a member is left out because it is outside the split folders."""
        return self._tree.leaves_out(self._inside(path))

    def _inside(self, path: str) -> str:
        parts = path.split("/")
        inside = parts[self._wrappers :] if len(parts) > self._wrappers else parts[-1:]
        return "/".join((*self._above, *inside))
