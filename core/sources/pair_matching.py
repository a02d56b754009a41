"""Pairs images and annotation files whose paths differ, by their names and by what the files say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.annotation_files import (
    MAX_BYTES,
    AnnotationFault,
    read_annotation_file,
    side_by_side,
)
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.image_files import files_below, is_hidden, join, key_of
from shardwright.core.sources.moved_files import file_name
from shardwright.core.sources.pairs import Matches, PairedFolders
from shardwright.schemas.image_ref import printable


def match_by_names(
    folders: PairedFolders,
    files: Collection[str],
    named_images: Callable[[bytes], list[str]],
    noun: str,
    max_bytes: int = MAX_BYTES,
) -> Matches:
    """Returns the pairs of images and annotation files.

    An image and a file are a pair by the first rule for which both have exactly one partner: the same path
    without extension; the same name without extension; the file names the image; the same without extension;
    the same without regard to case.

    Args:
      folders: Folders of the images and the annotation files.
      files: Paths of the annotation files in their folder.
      named_images: Returns the file names that an annotation file gives its image, the likeliest first.
      noun: Word for an annotation file.
      max_bytes: Size from which an annotation file is too large.
    """

    def names_in(file: str) -> list[str]:
        try:
            data = read_annotation_file(join(folders.annotations, file), max_bytes) or b""
        except AnnotationFault:
            return []
        return [key_of(name) for name in named_images(data)]

    images = [path for path, _ in files_below(folders.images) if is_image_name(path) and not is_hidden(path)]
    matcher = _Matcher(images, sorted(files), noun)
    matcher.pair(lambda path: [stem_of(key_of(path))], lambda path: [stem_of(key_of(path))])
    matcher.pair(_stem, _stem)
    if matcher.images and matcher.files:
        rest = matcher.files
        named = dict(zip(rest, side_by_side(names_in, rest, folders.annotations)))
        matcher.pair(lambda image: [file_name(key_of(image)), *_stem(image)], lambda file: named[file])
        matcher.pair(_stem, lambda file: map(stem_of, named[file]))
        matcher.pair(
            lambda image: map(str.casefold, _stem(image)),
            lambda file: map(str.casefold, [*_stem(file), *map(stem_of, named[file])]),
        )
    rest = [*matcher.images, *matcher.files]
    return Matches(matcher.pairs, {one: matcher.unclear[one] for one in rest if one in matcher.unclear})


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

    def pair(
        self, names_of_image: Callable[[str], Iterable[str]], names_of_file: Callable[[str], Iterable[str]]
    ) -> None:
        """Pairs what is left and has a common name."""
        images = {image: [*names_of_image(image)] for image in self.images}
        files = {file: [*names_of_file(file)] for file in self.files}
        files_of, images_of = _common(images, files), _common(files, images)
        for image, partners in files_of.items():
            others = images_of[partners[0]]
            if len(partners) == 1 and len(others) == 1:
                self.pairs[image] = partners[0]
            elif len(partners) > 1:
                self._note(image, f"there are several {self._noun}s that could be its own", partners)
            else:
                self._note(image, f"there are several images that its {self._noun} fits", others)
        for file, several in images_of.items():
            if len(several) > 1:
                self._note(file, "it fits several images", several)
        used = {*self.pairs.values()}
        self.images = [image for image in self.images if image not in self.pairs]
        self.files = [file for file in self.files if file not in used]

    def _note(self, one: str, message: str, several: Sequence[str]) -> None:
        self.unclear.setdefault(one, f"{message}: {' and '.join(map(printable, several[:3]))}")


def _common(items: Mapping[str, Sequence[str]], others: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Returns item -> sorted others that share a name with it, for items with such others."""
    by_name: dict[str, set[str]] = {}
    for other, names in others.items():
        for name in names:
            by_name.setdefault(name, set()).add(other)
    partners = {
        item: {one for name in names for one in by_name.get(name, ())} for item, names in items.items()
    }
    return {item: sorted(several) for item, several in partners.items() if several}
