"""Headers of arrays, shapes of images and forms of labels, valid and damaged."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from shardwright.schemas.byte_range import PIXELS, decode_place
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import ClassId
from shardwright.transforms.sources.arrays import list_rows
from shardwright.transforms.sources.arrays.checks import image_shape
from shardwright.transforms.sources.arrays.idx import parse_idx_header
from shardwright.transforms.sources.arrays.labels import LabelReader
from shardwright.transforms.sources.arrays.numpy_files import parse_npy_header
from shardwright.transforms.sources.arrays.rows import ArrayHeader, FileSlice, Rows, slice_of


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(max_dims=4)), st.booleans())
def test_numpys_headers_are_parsed(array: np.ndarray, fortran: bool) -> None:
    """The result is NumPy's own, or that the values are neither pixels nor labels."""
    file = io.BytesIO()
    np.save(file, np.asfortranarray(array) if fortran else array)
    try:
        header = parse_npy_header(file.getvalue())
    except ValueError as error:
        assert array.dtype.kind in "cMm" and "neither pixels nor labels" in str(error)
        return
    assert (header.dtype, header.shape) == (array.dtype.str, array.shape)
    assert header.end == len(file.getvalue())


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused_as_headers(data: bytes) -> None:
    for begin, parse in ((b"\x93NUMPY\1\0\x76\0", parse_npy_header), (b"\0\0\x08\3", parse_idx_header)):
        for head in (data, begin + data):
            with contextlib.suppress(ValueError):
                parse(head)


_DEEP = b"(" * 5000


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }",
        b"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (5,), }",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (-5, 3), }",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 3), }" % 10**30,
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (), }",
        b"__import__('os').system('true')",
        _DEEP,
    ],
)
def test_hostile_headers_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_npy_header(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text)


@pytest.mark.parametrize(
    ("shape", "given_shape", "expected"),
    [
        ((5, 28, 28), "", ((28, 28, 1), False)),
        ((5, 28, 28, 1), "", ((28, 28, 1), False)),
        ((5, 32, 30, 3), "", ((32, 30, 3), False)),
        ((5, 3, 32, 30), "", ((32, 30, 3), True)),
        ((5, 4, 32, 30), "", ((32, 30, 4), True)),
        ((5, 1, 28, 28), "", ((28, 28, 1), True)),
        ((5, 784), "28x28", ((28, 28, 1), False)),
        ((5, 3072), "32x32x3", ((32, 32, 3), False)),
        ((5, 3, 9, 4), "3x9x4", ((3, 9, 4), False)),
        ((5, 3, 9, 4), "9x4x3", ((9, 4, 3), True)),
        ((5, 3, 3), "3x3", ((3, 3, 1), False)),
        ((5, 784), "", None),
        ((5, 784), "28x27", None),
        ((5, 28, 28, 28), "", None),
        ((5, 28, 28, 2), "", None),
        ((5,), "", None),
        ((32, 32, 3), "", None),  # probably a single image
    ],
)
def test_shapes_of_images_are_recognized(shape: tuple[int, ...], given_shape: str, expected: object) -> None:
    settings = ConvertSettings(pixel_shape=given_shape)
    header = ArrayHeader("|u1", shape, 0)
    if expected is None:
        with pytest.raises(UsageError):
            image_shape(header, settings, "a.npy")
    else:
        assert image_shape(header, settings, "a.npy") == expected


def test_unusable_labels_give_no_class() -> None:
    reader = LabelReader("a.npz!labels", names=["ant", "bee"])
    labels = reader.read(np.array([1.0, np.nan, -1, 2, 0]))
    assert [item.label for item in labels] == ["bee", "", "", "", "ant"]
    assert [bool(item.reason) for item in labels] == [False, False, False, True, False]
    assert list(reader.class_ids()) == [ClassId("ant", 0), ClassId("bee", 1)]


def test_unusable_texts_give_no_class() -> None:
    reader = LabelReader("a.npz!labels")
    damaged = np.array([b"ant", b"\xff\xfe", b" "])
    assert [(item.label, bool(item.reason)) for item in reader.read(damaged)] == [
        ("ant", False),
        ("", True),
        ("", False),
    ]
    wide = np.array([0x61, 0xD800, 0x7FFFFFFF, 0], "<u4").view("<U1")
    assert [(item.label, bool(item.reason)) for item in reader.read(wide)] == [
        ("a", False),
        ("", True),
        ("", True),
        ("", False),
    ]


def test_rows_may_have_only_one_class() -> None:
    rows = np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0]])
    reader = LabelReader("a.npz!labels")
    assert [item.label for item in reader.read(rows)] == ["1", "", "0"]
    assert set(reader.class_ids()) == {ClassId("0", 0), ClassId("1", 1), ClassId("2", 2)}


@given(st.integers(0, 40), st.integers(0, 9), st.integers(1, 3), st.integers(0, 5))
def test_every_stated_row_is_accounted_for(length: int, begin: int, size: int, count: int) -> None:
    file_slice = FileSlice("f", "f", 0, length, length, "")
    rows = Rows(file_slice, begin, size, size, count, (size,), "|u1")
    assert 0 <= rows.whole <= count
    assert begin + rows.whole * size <= max(length, begin)
    assert rows.whole == count or begin + (rows.whole + 1) * size > length


def test_the_keys_of_many_images_sort_by_number(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.bin"
    path.write_bytes(bytes(range(200)) * 2)
    rows = Rows(slice_of(str(path)), 7, 10, 4, 1_200_000, (2, 2, 1), "|u1")
    refs = list(list_rows(rows, lambda first, count: LabelReader("").read(np.arange(first, first + count)),
                          "a!", "train", str(path)))  # fmt: skip
    assert refs[0].key == "a!0000000" and len(refs) == rows.whole + 10_001
    assert [ref.key for ref in refs] == sorted(ref.key for ref in refs)
    place = decode_place(refs[3].place)
    assert (place.offset, place.length, place.method, place.shape) == (37, 4, PIXELS, (2, 2, 1))
    assert refs[3].label == "3" and refs[3].version != refs[4].version
    assert refs[-1].message.startswith("this one and 1189960 more")
    same = [ref for ref in refs[:20] if ref.version == refs[0].version]
    assert same == [refs[0]]
