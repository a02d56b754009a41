"""Finds the folder of an annotation file's images, and the prefix of their keys."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.transforms.sources.image_files import below, find_root, folder_of, join, parent_of


def find_image_root(path: str, names: Sequence[str], named: str, token: str = "") -> str:
    """Returns the folder that contains the images of an annotation file; empty if none does.

    Args:
      path: Path of the annotation file.
      names: Relative paths of a few of its images.
      named: Folder that `--image_root` names; empty if it is not given.
      token: Split in the file's name; folders of that name are tried too.
    """
    if named:
        named = named.rstrip("/") or "/"
        return find_root([join(named, token), named], names) or named if token else named
    here = folder_of(path)
    above = parent_of(here)
    places = [here, join(here, "images"), join(above, "images"), join(above, "data")]
    if token:
        folders = (here, above, join(here, "images"), join(above, "images"))
        places += [join(folder, token) for folder in folders]
    return find_root(places, names)


def key_prefix(root: str, input_folder: str, named: str) -> str:
    """Returns the prefix of the keys of an annotation file's images: their folder, if the input is a folder.

    Args:
      root: Folder of the images.
      input_folder: The input if it is a folder; empty if it is the file.
      named: Folder that `--image_root` names; empty if it is not given.
    """
    if not input_folder:
        return ""
    inner = below(f"{root}/", input_folder.rstrip("/"))
    if inner is None and named:
        inner = below(f"{root}/", named.rstrip("/"))
    return f"{root.rpartition('/')[2]}/" if inner is None else inner
