"""Finds where the paths of an annotation file begin, and what the keys of its images begin with."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.transforms.sources.image_files import below, find_root, folder_of, join, parent_of


def find_image_root(path: str, names: Sequence[str], named: str, token: str = "") -> str:
    """Returns the folder that holds the images of an annotation file; empty if none does.

    Args:
      path: the annotation file.
      names: the relative paths of a few of its images.
      named: the folder that `--image_root` names; empty without one.
      token: the split that the file's name speaks of; folders of that name are tried too.
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
    """Returns what the keys of an annotation file's images begin with: their folder, if the input is one.

    Args:
      root: the folder of the images.
      input_folder: the input, if it is a folder; empty if it is the file.
      named: the folder that `--image_root` names; empty without one.
    """
    if not input_folder:
        return ""
    inner = below(f"{root}/", input_folder.rstrip("/"))
    if inner is None and named:
        inner = below(f"{root}/", named.rstrip("/"))
    return f"{root.rpartition('/')[2]}/" if inner is None else inner
