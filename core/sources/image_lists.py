"""The files of an input that list images, and the folders in which their images may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwright.core import storage
from shardwright.core.sources.image_files import below, find_root, folder_of, join, parent_of, split_token
from shardwright.core.sources.input_probe import InputProbe
from shardwright.schemas.configuration.settings import ConvertSettings

#: Folders of images beside a file: of most exporters, and of FiftyOne.
_IMAGE_FOLDERS = ("images", "data")


def names_with(
    probe: InputProbe, suffixes: str | tuple[str, ...], tried: int | None, is_one: Callable[[str], bool]
) -> list[str]:
    """Returns the names of the files in a folder that have a suffix and pass a test.

    Args:
      probe: The folder.
      suffixes: Suffixes of the names, in lower case.
      tried: Number of files to test, the first by name; None for all.
      is_one: Returns whether the file with this path is of the format.
    """
    names = [name for name in probe.files if name.lower().endswith(suffixes) and not name.startswith(".")]
    return [name for name in names[:tried] if is_one(storage.join(probe.path, name))]


def _usual_folders(path: str, settings: ConvertSettings) -> list[str]:
    """Returns the folders that may contain the images of a file, the likeliest first.

    Args:
      path: Path of the file; the images of `instances_val2017.json` may be in `val2017/` or `val/`.
      settings: Settings with `image_root`.
    """
    stem = path.rpartition("/")[2].rpartition(".")[0]
    inner = [name for name in (stem.rpartition("_")[2], split_token(stem)) if name]
    here = named_folder(path, settings)
    if settings.image_root:
        return [here, *(join(here, name) for name in inner)]
    above = parent_of(here)
    folders = [join(place, name) for name in _IMAGE_FOLDERS for place in (here, above)]
    of_split = [join(place, name) for name in inner for place in (here, above, *folders)]
    return [here, *folders, *of_split, above]


def named_folder(path: str, settings: ConvertSettings) -> str:
    """Returns `--image_root`, or the folder of the file."""
    return settings.image_root.rstrip("/") or "/" if settings.image_root else folder_of(path)


def usual_root(path: str, settings: ConvertSettings, *attempts: Sequence[str]) -> str:
    """Returns the usual folder that has images of a file, or else `--image_root`; empty if there is neither.

    Args:
      path: Path of the file.
      settings: Settings with `image_root`.
      *attempts: Paths that a few images may have below the folder, the likeliest forms first.
    """
    folders = _usual_folders(path, settings)
    roots = filter(None, (find_root(folders, names) for names in attempts))
    return next(roots, folders[0] if settings.image_root else "")


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
