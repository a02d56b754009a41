"""Arrays: names, headers, shapes, labels, and everything wrong with them; pickles are read like in Python."""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.array_files import converted_pixels, digits, grays, write_cifar10, write_mnist
from helpers.embedded import refs_of
from helpers.listing import listed, refusal
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from shardwright.core.sources.arrays import IMAGES, LABELS, cifar, files, list_rows, parse_array_name
from shardwright.core.sources.arrays.cifar import PickledArray, PickleError, read_pickle
from shardwright.core.sources.arrays.values import LabelReader, image_shape
from shardwright.schemas.byte_range import PIXELS, decode_place
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import ClassId


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(max_dims=4)), st.booleans())
def test_numpys_headers_are_parsed(array: np.ndarray, fortran: bool) -> None:
    """The result is NumPy's own, or that the values are neither pixels nor labels."""
    file = io.BytesIO()
    np.save(file, np.asfortranarray(array) if fortran else array)
    try:
        header = files.parse_npy_header(file.getvalue())
    except ValueError as error:
        assert array.dtype.kind in "cMm" and "neither pixels nor labels" in str(error)
        return
    assert (header.dtype, header.shape) == (array.dtype.str, array.shape)
    assert header.end == len(file.getvalue())


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused_as_headers(data: bytes) -> None:
    for begin, parse in (
        (b"\x93NUMPY\1\0\x76\0", files.parse_npy_header),
        (b"\0\0\x08\3", files.parse_idx_header),
    ):
        for head in (data, begin + data):
            with contextlib.suppress(ValueError):
                parse(head)


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }",
        b"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (5,), }",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (-5, 3), }",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 3), }" % 10**30,
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (), }",
        b"__import__('os').system('true')",
        b"(" * 5000,
    ],
)
def test_hostile_headers_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        files.parse_npy_header(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text)


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
        ((5, 784), "", "--pixel_shape HxWxC, such as"),
        ((5, 3, 9, 4), "", "--pixel_shape HxWxC, such as"),
        ((5, 3, 3), "", "--pixel_shape HxWxC, such as"),
        ((5, 28, 28, 2), "", "--pixel_shape HxWxC, such as"),
        ((32, 32, 3), "", "--pixel_shape HxWxC, such as"),  # probably a single image
        ((5, 784), "28x27", "which is not --pixel_shape 28x27x1"),
        ((5, 28, 28, 28), "", "name the right array with --image_column"),
        ((5, 0, 28), "", "name the right array with --image_column"),
        ((5,), "", "name the right array with --image_column"),
    ],
)
def test_shapes_of_images_are_recognized(shape: tuple[int, ...], given_shape: str, expected: object) -> None:
    settings = ConvertSettings(pixel_shape=given_shape)
    header = files.ArrayHeader("|u1", shape, 0)
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            image_shape(header, settings, "a.npy")
    else:
        assert image_shape(header, settings, "a.npy") == expected


@pytest.mark.parametrize(
    ("values", "names", "labels"),
    [
        (np.array([1.0, np.nan, -1, 2, 0]), ["ant", "bee"], ["bee", None, None, "BAD_ANNOTATION", "ant"]),
        (np.array([b"ant", b"\xff\xfe", b" "]), [], ["ant", "BAD_ANNOTATION", None]),
        (
            np.array([0x61, 0xD800, 0x7FFFFFFF, 0], "<u4").view("<U1"),
            [],
            ["a", "BAD_ANNOTATION", "BAD_ANNOTATION", None],
        ),
        (np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0]]), [], ["1", None, "0"]),
        (np.array(["ant", "bee", "cow é"]), [], ["ant", "bee", "cow é"]),
        (np.array(["ant", "cow"]).astype(">U3"), [], ["ant", "cow"]),
        (np.asfortranarray(np.eye(3)[[2, 0, 1, 1]]), [], ["2", "0", "1", "1"]),
        (np.array([[5.0], [4.0], [0.0], [5.0]], ">f4"), [], ["5", "4", "0", "5"]),
        (np.array([2**40, 7, 7, 2**40]), [], [str(2**40), "7", "7", str(2**40)]),
    ],
)
def test_every_form_of_labels_is_read(values: np.ndarray, names: list[str], labels: list[str | None]) -> None:
    reader = LabelReader("a.npz!labels", names=names)
    assert [item.label or item.reason or None for item in reader.read(values)] == labels
    if names or values.shape[1:] == (3,):
        every = names or ["0", "1", "2"]
        assert set(reader.class_ids()) == {ClassId(name, number) for number, name in enumerate(every)}


def test_the_keys_of_many_images_sort_by_number(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.bin"
    path.write_bytes(bytes(range(200)) * 2)
    rows = files.Rows(files.slice_of(str(path)).after(7), 10, 1_200_000, (2, 2, 1), "|u1")
    labels = files.Rows(files.slice_of(str(path)), 1, 1_200_000, (), "|u1")
    refs = list(list_rows(rows, LabelReader("", labels), "a!", "train"))
    assert refs[0].key == "a!0000000" and len(refs) == rows.whole + 10_001
    assert [ref.key for ref in refs] == sorted(ref.key for ref in refs)
    place = decode_place(refs[3].place)
    assert (place.offset, place.length, place.method, place.shape) == (37, 4, PIXELS, (2, 2, 1))
    assert refs[3].label == "3" and refs[3].version != refs[4].version
    assert refs[-1].message.startswith("this one and 1189960 more")
    same = [ref for ref in refs[:20] if ref.version == refs[0].version]
    assert same == [refs[0]]


@pytest.mark.parametrize(
    ("name", "role", "split", "number", "dataset"),
    [
        ("train-images-idx3-ubyte.gz", IMAGES, "train", "", ""),
        ("t10k-labels.idx1-ubyte", LABELS, "test", "", ""),
        ("x_train", IMAGES, "train", "", ""),
        ("y_test.npy", LABELS, "test", "", ""),
        ("X", IMAGES, "", "", ""),
        ("train_images_007.npy", IMAGES, "train", "007", ""),
        ("val_labels", LABELS, "val", "", ""),
        ("image_labels", LABELS, "", "", ""),
        ("kmnist-train-imgs.npz", IMAGES, "train", "", "kmnist"),
        ("features", "", "", "", "features"),
    ],
)
def test_names_give_role_split_number_and_dataset(
    name: str, role: str, split: str, number: str, dataset: str
) -> None:
    assert parse_array_name(name)[:4] == (role, split, number, dataset)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"images": "greys*1.0", "labels": "digits"}, "must be between 0 and 1; scale them"),
        ({"images": "greys*1000", "labels": "digits"}, "must be between 0 and 255; scale them"),
        ({"images": "greys", "labels": "digits[:4]"}, "5 images"),
        ({"images": "greys.reshape(5, -1)", "labels": "digits"}, "--pixel_shape HxWxC, such as"),
        ({"images": "np.array([b'x'] * 5)", "labels": "digits"}, "--image_column"),
        ({"images": "np.array([{}] * 5)", "labels": "digits"}, "never unpickled"),
        ({"images": "greys", "labels": "np.array([{}] * 5)"}, "never unpickled"),
        ({"images": "greys", "labels": "greys"}, "--label_column"),
        ({"images": "greys", "labels": "np.zeros((5, 0), 'i8')"}, "shape (0,) for each image, not labels"),
        ({"images": "greys", "labels": "digits + 0.5"}, "whole numbers"),
        ({"images": "greys", "labels": "np.arange(15).reshape(5, 3)"}, "one-hot"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, str], says: str) -> None:
    known = {
        "greys": grays(5).astype(np.float64 if "1.0" in arrays["images"] else np.int64),
        "digits": digits(5),
    }
    values = {name: eval(text, {"np": np, **known}) for name, text in arrays.items()}
    np.savez(tmp_path / "a.npz", **values)
    assert says in refusal(tmp_path / "a.npz")


def test_missing_images_and_bytes_after_the_last_one_are_reported(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "in", packed=False)
    train, test = (folder / f"{name}-images-idx3-ubyte" for name in ("train", "t10k"))
    train.write_bytes(train.read_bytes()[: 16 + 784 * 30 + 5])
    test.write_bytes(test.read_bytes() + b"more")
    refs, _ = refs_of(folder, tmp_path / "spool")
    assert len(refs) == 53
    behind, *missing = (ref for ref in refs if not ref.is_candidate)
    assert behind.key == f"{test.name}!000012" and "4 bytes after the last image" in behind.message
    assert [(ref.key, ref.reason) for ref in missing] == [
        (f"{train.name}!{number:06d}", "TRUNCATED") for number in range(30, 40)
    ]


def test_a_truncated_compressed_file_loses_only_its_last_images(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "in")
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-3000])
    refs, _ = refs_of(folder, tmp_path / "spool")
    assert len(refs) == 52 and 0 < sum(ref.reason == "TRUNCATED" for ref in refs) < 40
    pictures = grays(52)
    for key, (pixels, _, _) in converted_pixels(folder).items():
        if key.startswith("train"):
            assert np.array_equal(pixels[..., 0], pictures[int(key.partition("!")[2])])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_is_never_written(tmp_path: Path, save: Any) -> None:
    """The archive's checksum shows that a pixel is wrong, but not which one."""
    save(tmp_path / "a.npz", images=grays(9), x_test=grays(5), labels=digits(9), y_test=digits(5))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"images.npy") + 3000] ^= 0x55
    (tmp_path / "a.npz").write_bytes(data)
    entries = listed(tmp_path / "a.npz", "classification", tmp_path).entries()
    reasons = [entry.reason for entry in entries.values() if entry.outcome == "quarantined"]
    assert len(reasons) == 9 and {*reasons} <= {"CORRUPT", "CHECKSUM_MISMATCH"} and len(entries) == 14


def test_pixels_out_of_range_fail_one_image(tmp_path: Path) -> None:
    pictures = grays(9) / 255
    pictures[4, 3, 3], pictures[7, 0, 0] = 1.5, np.nan
    np.savez(tmp_path / "a.npz", images=pictures, labels=digits(9))
    entries = listed(tmp_path / "a.npz", "classification", tmp_path).entries()
    reasons = {key[-1]: entry.reason for key, entry in entries.items() if entry.outcome == "quarantined"}
    assert reasons == {"4": "CORRUPT", "7": "CORRUPT"}


def test_hostile_pickles_run_nothing(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "in")
    hostile = {"data": _Calls(eval, (f"open({str(tmp_path / 'pwned')!r}, 'w')",)), "labels": []}
    put_files(tmp_path / "in", {"data_batch_2": pickle.dumps(hostile, 2)})
    assert re.search("data_batch_2 .*never run", refusal(tmp_path / "in"))
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(("classes", "array"), [(2, "a/images.npz"), (10, "images.npz")])
def test_folders_of_other_content_are_left_to_other_sources(
    tmp_path: Path, photos: Path, classes: int, array: str
) -> None:
    """Class folders remain class folders, whatever array is beside them."""
    folder = tmp_path / "in"
    photo = min((photos / "fruit").iterdir()).read_bytes()
    for name in "abcdefghij"[:classes]:
        put_files(folder / name, {"0.jpg": photo, "1.jpg": photo})
    np.savez(folder / array, images=grays(3))
    found = listed(folder, "classification")
    assert found.input.source == "class_folders"
    assert sorted(found.reasons().values()) == ["not_an_image"] and len(found.refs) == 2 * classes + 1


def test_several_datasets_in_one_folder_need_a_choice(tmp_path: Path) -> None:
    for name in ("mnist", "fashion"):
        np.savez(tmp_path / f"{name}.npz", x_train=grays(4), y_train=digits(4))
    assert "fashion.npz and mnist.npz" in refusal(tmp_path)
    assert len(listed(tmp_path, "classification", tmp_path, source="arrays").refs) == 8


@pytest.mark.parametrize("source", ["auto", "arrays"])
def test_files_in_deep_folders_and_hidden_ones_are_counted(tmp_path: Path, source: str) -> None:
    for folder in ("", "1/2/3/4/", ".hidden/", "1/2/3/notes/"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    np.save(tmp_path / "images_1.npy", grays(3))
    for folder in ("1/2/3/4", ".hidden"):
        np.save(tmp_path / folder / "images_2.npy", grays(3))
    (tmp_path / "1/2/3/notes/read.me").touch()
    found = listed(tmp_path, "classification", source=source, unlabelled="keep")
    assert len(found.refs) == 8
    assert found.reasons() == {".hidden/images_2.npy": "dotfile", "1/2/3/notes/read.me": "not_an_image"}


def test_an_array_in_several_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for piece in range(3):
        np.save(tmp_path / "in" / f"images_{piece:03d}.npy", grays(9)[piece * 3 : piece * 3 + 3])
        np.save(tmp_path / "in" / f"labels_{piece:03d}.npy", digits(9)[piece * 3 : piece * 3 + 3])
    found = converted_pixels(tmp_path / "in")
    for number in range(9):
        pixels, label, _ = found[f"images_{number // 3:03d}.npy!{number % 3:06d}"]
        assert np.array_equal(pixels[..., 0], grays(9)[number]) and label == str(digits(9)[number])


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | _TEXT
    | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(_TEXT, inner) | st.tuples(inner) | st.tuples(inner, inner, inner)
    ),
    max_leaves=30,
)


@given(_PLAIN, st.integers(0, 5))
def test_plain_data_is_read(data: Any, protocol: int) -> None:
    assert read_pickle(io.BytesIO(pickle.dumps(data, protocol))) == data


@given(_PLAIN, st.data())
def test_damaged_data_is_an_error_or_other_plain_data(content: Any, data: st.DataObject) -> None:
    """Any change of a byte gives our own error or other plain data, never a crash."""
    made = bytearray(pickle.dumps(content, data.draw(st.integers(0, 5))))
    place = data.draw(st.integers(0, len(made) - 1))
    made[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PickleError):
        read_pickle(io.BytesIO(made[: data.draw(st.integers(place, len(made)))]))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read(protocol: int, order: Any) -> None:
    array = np.arange(2000, dtype=np.uint16).reshape(10, -1).copy(order)
    for stored in (array, array.astype(">u2")):
        found = read_pickle(io.BytesIO(pickle.dumps({"data": stored}, protocol)))["data"]
        assert isinstance(found, PickledArray) and (found.integers() == array).all()


def test_numbers_of_numpy_are_read() -> None:
    data = [np.int64(-5), np.uint8(200)]
    assert read_pickle(io.BytesIO(pickle.dumps(data, 4))) == [-5, 200]


class _Calls:
    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


#: The names of the last two are like names that plain data needs.
_CALLS: tuple[Any, ...] = (
    (os.system, ("touch pwned",)),
    (eval, ("open('pwned', 'w')",)),
    (np.frombuffer, (b"x",)),
    (bytearray, (10**12,)),
)


@pytest.fixture
def extension() -> Any:
    copyreg.add_extension("os", "system", 7)
    yield 7
    copyreg.remove_extension("os", "system", 7)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_code_is_run(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for made in (
        pickle.dumps(object(), protocol),
        *(pickle.dumps([_Calls(*call)], protocol) for call in _CALLS),
        b"Ppwned\n.",  # values that a program keeps outside of its pickles
        b"\x80\x02U\5pwnedQ.",
        b"\x80\x02\x82\x07(X\x0b\0\0\0touch pwnedtR.",
        b"(X\x0b\0\0\0touch pwnedios\nsystem\n.",
        b"(cos\nsystem\nX\x0b\0\0\0touch pwnedo.",
        b"\x80\x05\x97.",
    ):
        with pytest.raises(PickleError, match="never run"):
            read_pickle(io.BytesIO(made))
    assert not list(tmp_path.iterdir())


_ENCODE = b"c_codecs\nencode\n"
_TYPE = b"cnumpy\ndtype\n(X\2\0\0\0u1tR"
_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n)R"


@pytest.mark.parametrize(
    "made",
    [
        *(pickle.dumps(array, 2) for array in (np.zeros(3, "f4"), np.array([{}]), np.zeros(2, "i2,f4"))),
        # Misuse of names that arrays need.
        _ENCODE + b"}X\x01\0\0\0aK\1sb.",  # sets attributes of a function
        _ENCODE + b"N}X\x0c\0\0\0__defaults__)s\x86b.",
        b"cnumpy\nndarray\n)R.",
        b"cnumpy\nndarray\n)b.",
        _ARRAY + b"}b.",
        _ARRAY + b"(K\1K\1NNNtb.",
        b"]}b.",
        b"c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.",
        _ENCODE + b"(X\1\0\0\0aX\3\0\0\0zlbtR.",
        b"cnumpy.core.multiarray\nscalar\n(" + _TYPE + b"C\2abtR.",
        b"cos.path\njoin\n.",
        b"\x80\x04X\x05\0\0\0numpyX\x15\0\0\0ndarray.__reduce_ex__\x93.",
        # Bombs, which need neither memory nor time.
        b"]r\xff\xff\xff\x7f.",  # a memo with two billion places
        b"]p99999999999\n.",
        b"B\xff\xff\xff\xff.",  # a string of 4 GB
        b"\x8e" + struct.pack("<Q", 2**60) + b".",
        b"\x8b\xff\xff\xff\x7f.",  # a number of 2 GB
        b"(" * 10_000,
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\xff\xff\xff\x7ftU\1btR(K\1NNNNtb.",
        b"N" * 3_000_100,
        b"",
    ],
)
def test_pickles_without_an_array_of_integers_are_refused(made: bytes) -> None:
    with pytest.raises(PickleError):
        read_pickle(io.BytesIO(made)).integers()
    array = np.arange(3)
    assert (read_pickle(io.BytesIO(pickle.dumps(array, 2))).integers() == array).all()


def test_the_same_text_is_not_encoded_again_and_again() -> None:
    text = b"X" + struct.pack("<I", 1000) + b"a" * 1000
    made = text + b"q\0" + b"".join(_ENCODE + b"(h\0U\6latin1tR" for _ in range(100)) + b"."
    with pytest.raises(PickleError, match="larger than its file"):
        read_pickle(io.BytesIO(made))


def test_a_large_pickle_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "data_batch_1").open("w+b") as file:
        file.truncate(cifar.MAX_PICKLE_BYTES + 1)
        with pytest.raises(PickleError, match=r"500.0 MB are read; save its images as a .npy file"):
            read_pickle(file)


def test_protocol_0_of_python_2_says_what_to_do() -> None:
    with pytest.raises(PickleError, match="protocol 2"):
        read_pickle(io.BytesIO(b"S'\\xff'\n."))
