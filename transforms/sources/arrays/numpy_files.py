"""Reads NumPy's `.npy` and `.npz` files; uncompressed members of `.npz` files are read in place."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from typing import IO

from numpy.lib import format as npy_format

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import UsageError, nearest, words_of
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.sources.arrays.rows import (
    HEADER_BYTES,
    ArrayHeader,
    FileSlice,
    Rows,
    UnreadableRows,
    head_of,
    read_first,
    rows_of,
    slice_of,
    unpack,
)
from shardwright.transforms.sources.source import Context

#: A zip's local file header (APPNOTE.TXT 4.3.7); its last two fields are lengths.
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_NPY = ".npy"
_ENCRYPTED = 0x1
_CHUNK_BYTES = 1 << 20


def parse_npy_header(head: bytes) -> ArrayHeader:
    """Reads the header of an array without unpickling anything.

    Raises:
      ValueError: if it is not an array's header, or the values are not plain.
    """
    file = io.BytesIO(head)
    try:
        version = npy_format.read_magic(file)
        read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
    except KeyError:
        raise ValueError("its version of the format is not for plain numbers") from None
    except Exception as error:  # NumPy parses it as Python text, which can fail in many ways
        raise ValueError(f"it is not a NumPy array ({words_of(error)})") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled: save it with a plain dtype")
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "biufSU":
        raise ValueError(f"it holds values of type {dtype}, which are neither pixels nor labels")
    if not all(type(side) is int and 0 <= side < 2**63 for side in shape) or not shape:
        raise ValueError(f"its shape {shape} is not the shape of an array of images or labels")
    return ArrayHeader(dtype.str, shape, file.tell(), fortran)


def npy_header(path: str) -> ArrayHeader:
    """Reads the header of a `.npy` file; raises ValueError if it is not one."""
    return parse_npy_header(slice_of(path).read(0, HEADER_BYTES))


def npy_rows(path: str, context: Context) -> Rows:
    """Returns the rows of a `.npy` file; raises ValueError if it is not one."""
    file_slice = slice_of(path)
    return rows_of(file_slice, parse_npy_header(file_slice.read(0, HEADER_BYTES)), context)


def npz_members(path: str) -> dict[str, zipfile.ZipInfo]:
    """Returns the arrays in a `.npz` file by name.

    Raises:
      ValueError: if it is not a `.npz` file.
    """
    file_slice = slice_of(path)
    try:
        with zipfile.ZipFile(file_slice.open()) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
        raise ValueError(f"it is damaged or not a .npz file ({words_of(error)}); download it again") from None
    return {name.removesuffix(_NPY): info for name, info in members.items() if name.endswith(_NPY)}


def npz_member(members: Mapping[str, zipfile.ZipInfo], name: str, path: str, option: str) -> str:
    """Returns the name of the member that an option names.

    Raises:
      UsageError: if there is no such member.
    """
    if name in members:
        return name
    raise UsageError(
        f"{option} {name}: {printable(path)} has no such array; it has "
        f"{', '.join(sorted(members)) or 'none'}{nearest(name, sorted(members)) or '.'}"
    )


def npz_header(path: str, info: zipfile.ZipInfo) -> ArrayHeader:
    """Reads the header of an array in a `.npz` file; raises ValueError if it is not valid."""
    return _member_header(slice_of(path), info)


def npz_rows(path: str, name: str, context: Context) -> Rows:
    """Returns the rows of an array in a `.npz` file; a compressed array is unpacked into the spool.

    Raises:
      ValueError: if the array is not valid.
    """
    file_slice = slice_of(path)
    info = npz_members(path)[name]
    header = _member_header(file_slice, info)
    if info.compress_type != zipfile.ZIP_STORED:
        opened = partial(_open_member, file_slice, info)
        unpacked, damage = unpack(file_slice, info.filename, opened, header.end, context)
        return rows_of(unpacked, header, context, damage)
    inside = _stored_member(file_slice, info)
    return rows_of(inside, header, context, _check_crc(inside, info))


def first_npz_values(path: str, info: zipfile.ZipInfo, begin: int, length: int) -> bytes:
    """Returns the first bytes of the values of an array in a `.npz` file."""
    return read_first(partial(_open_member, slice_of(path), info), begin + length)[begin:]


def _open_member(file_slice: FileSlice, info: zipfile.ZipInfo) -> IO[bytes]:
    return zipfile.ZipFile(file_slice.open()).open(info)


def _member_header(file_slice: FileSlice, info: zipfile.ZipInfo) -> ArrayHeader:
    """Reads the header of a member; its checksum is not compared.

    Raises:
      ValueError: if it is not an array's header.
    """
    if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is encrypted, or compressed in a way that NumPy does not use; save it again")
    head = _stored_member(file_slice, info).read(0, HEADER_BYTES)
    return parse_npy_header(
        head if info.compress_type == zipfile.ZIP_STORED else head_of(head, -zlib.MAX_WBITS)
    )


def _stored_member(file_slice: FileSlice, info: zipfile.ZipInfo) -> FileSlice:
    """Returns the bytes of a member as they are stored.

    Raises:
      ValueError: if the member is not where the archive says.
    """
    head = file_slice.read(info.header_offset, _LOCAL_HEADER.size)
    if len(head) < _LOCAL_HEADER.size or not head.startswith(_LOCAL_SIGNATURE):
        raise ValueError("it is a damaged .npz file; download it again")
    *_, name, extra = _LOCAL_HEADER.unpack(head)
    return file_slice.inside(info.header_offset + _LOCAL_HEADER.size + name + extra, info.compress_size)


def _check_crc(member: FileSlice, info: zipfile.ZipInfo) -> UnreadableRows | None:
    """Compares a local member with its checksum; a remote member would have to be downloaded."""
    if storage.is_remote(member.file):
        return None
    checksum = 0
    for begin in range(0, member.length, _CHUNK_BYTES):
        checksum = zlib.crc32(member.read(begin, _CHUNK_BYTES), checksum)
    if checksum == info.CRC and member.length == info.file_size:
        return None
    return UnreadableRows(
        QuarantineReason.CHECKSUM_MISMATCH, f"the CRC-32 of {info.filename} is wrong; download the file again"
    )
