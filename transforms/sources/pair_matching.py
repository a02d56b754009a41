"""Pairs images and annotation files whose paths differ, by their names and by what the files say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from shardwright.schemas.image_ref import printable
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_annotation_file,
    side_by_side,
)
from shardwright.transforms.sources.files_beside import stem_of
from shardwright.transforms.sources.image_files import join, key_of
from shardwright.transforms.sources.moved_files import file_name
from shardwright.transforms.sources.pairs import Matches

_Names = Mapping[str, Sequence[str]]


def match_by_names(
    images: Collection[str],
    files: Collection[str],
    folder: str,
    named_images: Callable[[bytes], list[str]],
    prefix: str,
    noun: str,
) -> Matches:
    """Returns the pairs of images and annotation files.

    An image and a file are a pair if they have the same path without extension. The rest is matched by the
    first rule for which both have exactly one partner: equal file names; the file names the image; the same
    without extension; the same without regard to case.

    Args:
      images: Paths of the images in their folder.
      files: Paths of the annotation files in theirs.
      folder: Folder of the annotation files.
      named_images: Returns the file names that an annotation file gives its image, the likeliest first.
      prefix: Beginning of the keys of the images, for messages.
      noun: Word for an annotation file.
    """

    def names_in(file: str) -> list[str]:
        try:
            data = read_annotation_file(join(folder, file)) or b""
        except AnnotationFault:
            return []
        return [key_of(name) for name in named_images(data)]

    matches = Matches()
    by_stem = {stem_of(key_of(file)): file for file in sorted(files)}
    groups: dict[str, list[str]] = {}
    for image in sorted(images):
        groups.setdefault(stem_of(key_of(image)), []).append(image)
    for stem in sorted(groups.keys() & by_stem.keys()):
        _match_group(groups[stem], by_stem[stem], names_in, noun, matches)
    rest = [image for stem, group in groups.items() if stem not in by_stem for image in group]
    unused = [file for stem, file in by_stem.items() if stem not in groups]
    if rest and unused:
        matcher = _NameMatcher(rest, unused, prefix, noun)
        matcher.pair(_stem_names, {file: _stem_names(file) for file in unused})
        if left := matcher.unused():
            named = dict(zip(left, side_by_side(names_in, left, folder)))
            matcher.pair(lambda image: [file_name(key_of(image)), *_stem_names(image)], named)
            stems = {file: [*map(stem_of, names)] for file, names in named.items()}
            matcher.pair(_stem_names, stems)
            folded = {file: [*_folded(_stem_names(file)), *_folded(names)] for file, names in stems.items()}
            matcher.pair(lambda image: _folded(_stem_names(image)), folded)
        matches.files |= matcher.pairs
        matches.faults |= matcher.faults()
    return matches


def _match_group(
    images: list[str], file: str, names_in: Callable[[str], list[str]], noun: str, matches: Matches
) -> None:
    """Matches images that differ only in their extension: the file belongs to the one that it names."""
    if len(images) == 1:
        matches.files[images[0]] = file
        return
    names = names_in(file)
    named = [image for image in images if key_of(file_name(image)) in names]
    own = printable(file_name(file))
    for image in images:
        if len(named) != 1:
            several = " and ".join(printable(other) for other in images[:3])
            matches.faults[image] = f"{own} could belong to {several}"
        elif image != named[0]:
            matches.faults[image] = f"{own} belongs to {printable(named[0])}, so there is no {noun} for it"
        else:
            matches.files[image] = file


def _stem_names(path: str) -> list[str]:
    return [stem_of(file_name(key_of(path)))]


def _folded(names: Sequence[str]) -> list[str]:
    return [name.casefold() for name in names]


class _NameMatcher:
    """Pairs images and annotation files that have a name which no other image or file has.

    Attributes:
      pairs: Image -> its annotation file.
    """

    def __init__(self, images: Sequence[str], files: Sequence[str], prefix: str, noun: str) -> None:
        self._images, self._files, self._prefix, self._noun = images, files, prefix, noun
        self.pairs: dict[str, str] = {}
        self._unclear: dict[str, str] = {}

    def unused(self) -> list[str]:
        """Returns the files without an image; none if every image has a file."""
        used = {*self.pairs.values()}
        return (
            [file for file in self._files if file not in used] if len(self.pairs) < len(self._images) else []
        )

    def faults(self) -> dict[str, str]:
        """Returns image or file -> why it has no partner, if several could be."""
        done = {*self.pairs, *self.pairs.values()}
        return {one: message for one, message in self._unclear.items() if one not in done}

    def pair(self, names_of: Callable[[str], Sequence[str]], names_of_files: _Names) -> None:
        """Pairs what is left and has a common name."""
        used = {*self.pairs.values()}
        images = {image: names_of(image) for image in self._images if image not in self.pairs}
        files = {file: names for file, names in names_of_files.items() if file not in used}
        files_of, images_of = _common(images, files), _common(files, images)
        for image, partners in files_of.items():
            others = images_of[partners[0]]
            if len(partners) == 1 and len(others) == 1:
                self.pairs[image] = partners[0]
            elif len(partners) > 1:
                several = [file_name(file) for file in partners]
                self._note(image, f"there are several {self._noun}s that could be its own", several)
            else:
                several = [self._prefix + key_of(other) for other in others]
                self._note(image, f"there are several images that its {self._noun} fits", several)
        for file, several in images_of.items():
            if len(several) > 1:
                keys = [self._prefix + key_of(image) for image in several]
                self._note(file, "it fits several images", keys)

    def _note(self, one: str, message: str, several: Sequence[str]) -> None:
        self._unclear.setdefault(one, f"{message}: {' and '.join(map(printable, several[:3]))}")


def _common(items: _Names, others: _Names) -> dict[str, list[str]]:
    """Returns item -> sorted others that share a name with it, for items with such others."""
    by_name: dict[str, set[str]] = {}
    for other, names in others.items():
        for name in names:
            by_name.setdefault(name, set()).add(other)
    found = {item: {one for name in names for one in by_name.get(name, ())} for item, names in items.items()}
    return {item: sorted(partners) for item, partners in found.items() if partners}
