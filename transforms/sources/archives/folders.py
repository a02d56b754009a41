"""What the folders in an archive say: class and split, by the rules for folders on a disk."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.class_folders import SPLIT_FOLDERS, place, splits_among

#: Folders side by side that are remembered: more cannot all be splits, nor one around all.
_MOST = len(SPLIT_FOLDERS) + 1


class MemberFolders:
    """Looks at the paths of all members, then tells the class and split of each.

    Args:
      above: the folders in which the archive itself lies, below the input.
      beside: the folders at the top of the input, if the archive lies in one of them.
      depth: how many folders make a class name (`class_folders.place`).
    """

    def __init__(self, above: Sequence[str] = (), beside: Sequence[str] = (), depth: int = 1) -> None:
        self._above, self._beside, self._depth = tuple(above), tuple(beside), depth
        self._common: tuple[str, ...] = ()
        self._settled = False
        self._tops: dict[str, bool] = {}  # below the common folders: whether it has folders
        self._least_depth = self._most_depth = -1  # of the folders that images lie in
        self._wrappers = 0
        self._splits: tuple[str, ...] = ()

    def add(self, path: str, is_folder: bool = False) -> None:
        """Takes note of a member that is no dotfile."""
        *folders, name = path.split("/")
        if is_folder and name:
            folders.append(name)
        if not is_folder and is_image_name(name):
            known = self._least_depth if self._least_depth >= 0 else len(folders)
            self._least_depth = min(known, len(folders))
            self._most_depth = max(self._most_depth, len(folders))
        elif not folders:
            return  # a file beside the folders says nothing of them
        common = self._common
        if not self._settled and common == tuple(folders[: len(common)]):
            # So far there were only folders on the way to this one.
            self._common, self._settled = tuple(folders), not is_folder
            return
        shared = 0
        for ours, theirs in zip(common, folders):
            if ours != theirs:
                break
            shared += 1
        if is_folder and shared == len(folders):
            return  # one on the way to what is known
        self._settled = True
        if shared < len(common):
            self._tops = {common[shared]: len(common) > shared + 1 or bool(self._tops)}
            self._common = common[:shared]
        if shared < len(folders) and (folders[shared] in self._tops or len(self._tops) < _MOST):
            below = len(folders) > shared + 1 and not folders[shared + 1].startswith(".")
            self._tops[folders[shared]] = self._tops.get(folders[shared], False) or below

    def settle(self) -> None:
        """Decides, when all members were added."""
        common = self._common
        if self._above:
            nested = bool(common or self._tops) or len(self._above) > 1
            inner = {name: ["any"] if nested else [] for name in {*self._beside, self._above[0]}}
            self._splits = splits_among(inner)
        depth = 0
        # A folder around all is stepped over while every image lies in another one.
        while depth < min(len(common), self._least_depth - 1) and common[depth] not in SPLIT_FOLDERS:
            depth += 1
        self._wrappers = depth
        if not self._above:
            self._find_splits(depth)
        # As many folders as make a class name are left where any image lies in so many.
        wanted = self._depth - len(self._above) + (1 if self._above and self._splits else 0)
        if wanted > 1 and (self._above or not self._splits):
            self._wrappers = min(depth, max(self._most_depth - wanted, 0))

    def _find_splits(self, depth: int) -> None:
        common = self._common
        if depth < len(common):
            self._splits = splits_among({common[depth]: [*common[depth + 1 :], *self._tops]})
        elif len(self._tops) < _MOST:
            inner = {name: ["any"] if nested else [] for name, nested in self._tops.items()}
            self._splits = splits_among(inner)

    def place(self, path: str) -> tuple[str, str]:
        """Returns (split, class) of a member; empty where its folders say none."""
        parts = path.split("/")
        inside = parts[self._wrappers :] if len(parts) > self._wrappers else parts[-1:]
        return place("/".join((*self._above, *inside)), self._splits, self._depth)
