"""Files that list images, such as a CSV file of boxes: finds them in an input, and their images' folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from shardwright.core import storage
from shardwright.core.sources.image_files import (
    below,
    key_of,
    splits_of_files,
)
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, InputSplit

#: Number of files, and of folders, that are tried to detect a format.
MAX_TRIED = 50


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


def placed_lists(probe: InputProbe, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the path, the key and the split of each file.

    Args:
      probe: The input.
      names: Paths relative to the input; one empty path for an input that is a file.
    """
    for name, split in splits_of_files(names).items():
        yield (storage.join(probe.path, name), name, split) if name else (probe.path, probe.name, split)


def prefix_of_images(part: InputSplit, root: str, context: Context) -> str:
    """Returns the prefix of the keys of a file's images.

    Args:
      part: The file.
      root: Folder of its images.
      context: Context with `--image_root`.
    """
    folder = "" if part.path == part.item.path else part.item.path
    return part.item.prefix + key_of(key_prefix(root, folder, context.settings.image_root))


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
