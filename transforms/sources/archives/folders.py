"""What the folders in an archive say: class and split, by the rules for folders on a disk."""

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
    """Looks at the paths of all images in an archive, then tells the class and split of each member.

    Args:
      where: the archive, for messages.
      above: the folders in which the archive itself lies, below the input.
      beside: the folders at the top of the input that hold archives or images, if the archive lies in one.
      depth: how many folders make a class name (`FolderTree.place`).
      folders: the setting `--folders`.
    """

    def __init__(
        self,
        where: str = "",
        above: Sequence[str] = (),
        beside: Sequence[str] = (),
        depth: int = 1,
        folders: str = AUTO,
    ) -> None:
        self._where, self._above, self._beside = where, tuple(above), tuple(beside)
        self._depth, self._folders = depth, folders
        self._common: tuple[str, ...] = ()  # the folders around all images
        self._tops = TopFolders()  # inside of these
        self._least_depth = self._most_depth = -1  # of the folders that images lie in
        self._wrappers = 0
        self._tree = FolderTree()

    def add(self, path: str) -> None:
        """Takes note of an image that is not hidden."""
        folders = tuple(path.split("/")[:-1])
        if self._least_depth < 0:
            self._common = folders
            self._least_depth = self._most_depth = len(folders)
            return
        shared = 0
        for ours, theirs in zip(self._common, folders):
            if ours != theirs:
                break
            shared += 1
        if shared < len(self._common):  # so far all images lie in one folder at this level
            self._tops = TopFolders()
            self._tops.add(self._common[shared], nested=self._most_depth > shared + 1)
            self._common = self._common[:shared]
        if shared < len(folders):
            self._tops.add(folders[shared], nested=len(folders) > shared + 1)
        self._least_depth = min(self._least_depth, len(folders))
        self._most_depth = max(self._most_depth, len(folders))

    def settle(self, metadata: bool = False) -> None:
        """Decides, when all images were added.

        Args:
          metadata: whether a metadata file lies beside each image.

        Raises:
          UsageError: if the folders could mean two things.
        """
        common = self._common
        depth = 0
        # A folder around all is stepped over while every image lies in another one.
        while depth < min(len(common), self._least_depth - 1) and not split_of_folder(common[depth]):
            depth += 1
        tops, named = self._tops, list(self._tops.splits)
        if self._above:
            nested = self._most_depth > 0 or len(self._above) > 1
            named = [*self._beside, self._above[0]]
            tops = TopFolders()
            if self._most_depth >= 0:
                for name in named:
                    tops.add(name, nested)
        elif depth < len(common):
            tops = TopFolders()
            tops.add(common[depth], nested=self._most_depth > depth + 1)
        self._tree = decide(tops, self._folders, self._where, named, metadata)
        self._wrappers = depth
        # As many folders as make a class name are left where any image lies in so many.
        wanted = self._depth - len(self._above) + (1 if self._above and self._tree.splits else 0)
        if wanted > 1 and (self._above or not self._tree.splits):
            self._wrappers = min(depth, max(self._most_depth - wanted, 0))

    @property
    def names_classes(self) -> bool:
        """Whether folders say the classes."""
        return self._tree.names_classes

    def place(self, path: str) -> tuple[str, str]:
        """Returns (split, class) of a member; empty where its folders say none."""
        return self._tree.place(self._inside(path), self._depth)

    def leaves_out(self, path: str) -> bool:
        """Whether a member lies outside of the split folders and only these are read."""
        return self._tree.leaves_out(self._inside(path))

    def _inside(self, path: str) -> str:
        parts = path.split("/")
        inside = parts[self._wrappers :] if len(parts) > self._wrappers else parts[-1:]
        return "/".join((*self._above, *inside))
