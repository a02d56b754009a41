"""Finds metadata files beside the images of an archive."""

from __future__ import annotations

from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.images.byte_ranges import read_part
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.archives.files import OpenArchive
from shardwright.transforms.sources.archives.members import Member, is_hidden, member_key
from shardwright.transforms.sources.files_beside import is_metadata_name, stem_of
from shardwright.transforms.sources.hashing import name_hash
from shardwright.transforms.sources.image_metadata import MAX_METADATA_BYTES, BadMetadata


class MemberMetadata:
    """The members of an archive that are metadata files, if each image has one beside it.

    Args:
      opened: The archive.
    """

    def __init__(self, opened: OpenArchive) -> None:
        self._opened = opened
        self._members: dict[str, Member] = {}
        images: set[int] = set()
        for member in opened.members:
            path = member_key(member.name)
            if member.fault or member.is_folder or is_hidden(path):
                continue
            if is_image_name(path):
                images.add(name_hash(stem_of(path)))
            elif is_metadata_name(path):
                self._members[path] = member
        beside = {path: name_hash(stem_of(path)) for path in self._members}
        self._is_complete = bool(images) and images.issubset(beside.values())
        self._members = {
            path: member
            for path, member in self._members.items()
            if self._is_complete and beside[path] in images
        }

    def __bool__(self) -> bool:
        return self._is_complete

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
