"""Pairs images and annotation files whose paths differ, by their names and by what the files say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.image_files import files_below, is_hidden, key_of
from shardwright.core.sources.moved_files import file_name
from shardwright.schemas.image_ref import printable

#: Returns the names by which an image or a file may be found.
_NamesOf = Callable[[str], Iterable[str]]


def match_by_names(
    folder: str, files: Sequence[str], names_in: Callable[[str], list[str]], noun: str
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns image -> its annotation file, and image or annotation file without a partner -> the reason.

    An image and a file are a pair by the first rule for which both have exactly one partner: the same path
    without extension; the same name without extension; the file names the image; the same without extension;
    the same without regard to case. A reason is stated only if there could be several partners.

    Args:
      folder: Folder of the images.
      files: Paths of the annotation files in their folder.
      names_in: Returns the file names that an annotation file gives its image.
      noun: Word for an annotation file.
    """
    images = [path for path, _ in files_below(folder) if is_image_name(path) and not is_hidden(path)]
    matcher = _Matcher(images, files, noun)
    matcher.pair(lambda path: [stem_of(key_of(path))], lambda path: [stem_of(key_of(path))])
    matcher.pair(_stem, _stem)
    if matcher.images and matcher.files:
        stated = side_by_side(names_in, matcher.files, folder)
        named = {file: [*map(key_of, names)] for file, names in zip(matcher.files, stated)}
        matcher.pair(lambda image: [file_name(key_of(image)), *_stem(image)], lambda file: named[file])
        matcher.pair(_stem, lambda file: map(stem_of, named[file]))
        matcher.pair(
            lambda image: map(str.casefold, _stem(image)),
            lambda file: map(str.casefold, [*_stem(file), *map(stem_of, named[file])]),
        )
    left = {*matcher.images, *matcher.files}
    return matcher.pairs, {one: why for one, why in matcher.unclear.items() if one in left}


def _stem(path: str) -> list[str]:
    return [stem_of(file_name(key_of(path)))]


class _Matcher:
    """Pairs images and annotation files that have a name which no other image or file has.

    Attributes:
      images: Images without a file.
      files: Files without an image.
      pairs: Image -> its annotation file.
      unclear: Image or file -> why it got no partner by the first rule for which it could have several.
    """

    def __init__(self, images: Sequence[str], files: Sequence[str], noun: str) -> None:
        self.images, self.files, self._noun = images, files, noun
        self.pairs: dict[str, str] = {}
        self.unclear: dict[str, str] = {}

    def pair(self, names_of_image: _NamesOf, names_of_file: _NamesOf) -> None:
        """Pairs what is left and has a common name."""
        by_name: defaultdict[str, set[str]] = defaultdict(set)
        images_of: defaultdict[str, set[str]] = defaultdict(set)
        files_of: dict[str, set[str]] = {}
        for file in self.files:
            for name in names_of_file(file):
                by_name[name].add(file)
        for image in self.images:
            files_of[image] = {file for name in names_of_image(image) for file in by_name.get(name, ())}
            for file in files_of[image]:
                images_of[file].add(image)
        for image, files in files_of.items():
            others = {other for file in files for other in images_of[file]}
            if len(files) > 1:
                self._note(image, f"there are several {self._noun}s that could be its own", files)
            elif len(others) > 1:
                self._note(image, f"there are several images that its {self._noun} fits", others)
            elif files:
                self.pairs[image] = min(files)
        for file, images in images_of.items():
            if len(images) > 1:
                self._note(file, "it fits several images", images)
        used = {*self.pairs.values()}
        self.images = [image for image in self.images if image not in self.pairs]
        self.files = [file for file in self.files if file not in used]

    def _note(self, one: str, message: str, several: Iterable[str]) -> None:
        self.unclear.setdefault(one, f"{message}: {' and '.join(map(printable, sorted(several)[:3]))}")
