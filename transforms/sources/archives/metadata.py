"""Finds metadata files beside the images of an archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.images.byte_ranges import read_part
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.archives.files import OpenArchive
from shardwright.transforms.sources.archives.members import Member, member_key
from shardwright.transforms.sources.files_beside import is_metadata_name, stem_of
from shardwright.transforms.sources.image_metadata import MAX_METADATA_BYTES, BadMetadata
from shardwright.transforms.sources.name_hash import name_hash


class MemberMetadata:
    """The members of an archive that are metadata files, if each image has one beside it.

    Args:
      opened: The archive.
    """

    def __init__(self, opened: OpenArchive) -> None:
        self._opened = opened
        self._members: dict[str, Member] = {}
        self._images: frozenset[int] = frozenset()
        kinds = Counter(is_metadata_name(path) for path, _ in self._paths())
        if kinds[False] and kinds[True] >= kinds[False]:  # else some image has no metadata file
            self._remember()

    def _paths(self) -> Iterator[tuple[str, Member]]:
        """Yields the paths of all images and of all possible metadata files."""
        for member in self._opened.members:
            if not member.fault and not member.is_folder:
                path = member_key(member.name)
                shown = not any(part.startswith(".") or part == "__MACOSX" for part in path.split("/"))
                if shown and (is_image_name(path) or is_metadata_name(path)):
                    yield path, member

    def _remember(self) -> None:
        with_metadata = {name_hash(stem_of(path)) for path, _ in self._paths() if is_metadata_name(path)}
        images = frozenset(name_hash(stem_of(path)) for path, _ in self._paths() if is_image_name(path))
        if images <= with_metadata:
            self._images = images
            self._members = {
                path: member
                for path, member in self._paths()
                if is_metadata_name(path) and name_hash(stem_of(path)) in images
            }

    def __bool__(self) -> bool:
        return bool(self._images)

    def holds(self, path: str) -> bool:
        """Returns whether a member is the metadata of an image."""
        return path in self._members

    def read(self, ref: ImageRef, name: str) -> bytes | None:
        """Returns the content of an image's metadata file; None if it does not exist.

        Args:
          ref: The image.
          name: Extension of the metadata file.

        Raises:
          BadMetadata: if the file is damaged or too large.
        """
        _, _, path = ref.key.rpartition(f"{self._opened.archive.key}!")
        member = self._members.get(f"{stem_of(path)}.{name}")
        if member is None:
            return None
        if member.size > MAX_METADATA_BYTES:
            raise BadMetadata(f"its .{name} is too large")
        try:
            place = self._opened.place(member)
            return read_part(self._opened.part.path, place, member.size, MAX_METADATA_BYTES)
        except ImageFault as fault:
            raise BadMetadata(f"its .{name}: {fault.message}") from None
