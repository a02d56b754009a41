"""Values as users write them; numbers, limits, names and texts of libraries as they are printed."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.pipelines.tables import console, print_table
from shardwright.schemas import units
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.labels import labels_txt
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.units import beside_limit, counted, decimals_apart, is_or_are, percent_beside_limit


@pytest.mark.parametrize(
    ("function", "given", "size"),
    [
        (units.parse_size, "128MB", 128 * 10**6),
        (units.parse_size, "64MiB", 2**26),
        (units.parse_size, "1000", 1000),
        (units.parse_size, " 1.5 kb ", 1500),
        (units.parse_size, "0.5GiB", 2**29),
        (units.parse_size, "2TB", 2 * 10**12),
        (units.parse_size, "1b", 1),
        (units.format_size, 0, "0 B"),
        (units.format_size, 999, "999 B"),
        (units.format_size, 999.6, "1.0 kB"),
        (units.format_size, 999_949, "999.9 kB"),
        (units.format_size, 999_950, "1.0 MB"),
        (units.format_size, 1.23e9, "1.2 GB"),
        (units.format_size, 4.5e12, "4500.0 GB"),
    ],
)
def test_sizes_are_parsed_and_printed_for_people(
    function: Callable[..., object], given: object, size: object
) -> None:
    assert function(given) == size


def test_resize_boxes_are_parsed() -> None:
    assert units.parse_resize("224") == (224, 224)
    assert units.parse_resize(" 320x240 ") == units.parse_resize("320X240") == (320, 240)


def test_shares_are_exact_and_keep_their_order() -> None:
    splits = units.parse_splits("train=0.7, validation=0.2,test=0.1")
    assert list(splits) == ["train", "validation", "test"]
    assert list(splits.values()) == [Fraction(7, 10), Fraction(1, 5), Fraction(1, 10)]
    assert units.parse_splits("a=1/3,b=2/3")["a"] == Fraction(1, 3)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True), st.integers(1, 999), min_size=1, max_size=6
    )
)
def test_any_shares_that_add_up_are_accepted(weights: dict[str, int]) -> None:
    total = sum(weights.values())
    text = ",".join(f"{name}={Fraction(weight, total)}" for name, weight in weights.items())
    assert units.parse_splits(text) == {n: Fraction(w, total) for n, w in weights.items()}


def test_numbers_of_shards_are_parsed() -> None:
    assert units.parse_shards("8") == 8
    assert units.parse_shards("train=8, test=1") == {"train": 8, "test": 1}


def test_colors_are_parsed() -> None:
    assert units.parse_color("white") == units.parse_color("#fff") == (255, 255, 255)
    assert units.parse_color("#0a141e") == units.parse_color("rgb(10, 20, 30)") == (10, 20, 30)


#: Functions, and texts that each refuses.
REFUSED: list[tuple[Callable[[str], object], tuple[str, ...]]] = [
    (units.parse_size, ("", "MB", "-1", "1.5.1MB", "12 parsecs", "0", "0.1", "1e9", "1_000", "nan")),
    (units.parse_resize, ("", "0", "224x", "x224", "0x5", "-5", "1x2x3", "224.0", "123456", "224 x 224")),
    (
        units.parse_splits,
        ("", "train", "train=", "=1", "train=0.5", "a=0.5,a=0.5", "a=1,b=0", "a=1,b=1e-99999999", "a=1,"),
    ),
    (units.parse_splits, ("a=1.5,b=-0.5", "a b=1", "a=nan", "a=inf", "a=1/0", "../x=1")),
    (units.parse_shards, ("", "0", "-1", "100000", "8.0")),
    (units.parse_shards, ("train=0", "train=8,train=9", "train=", "=3", "a=1,")),
    (
        units.parse_color,
        ("", "whitish", "#12", "255,255,255", "rgb(1,2)", "rgb(256,0,0)", "hsv(10,200%,90%)"),
    ),
]


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, texts in REFUSED for text in texts])
def test_other_texts_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("exclude", "/", "'/' matches nothing"),
        ("include", "a,@", "a file name is missing after @"),
        ("exclude", "img[z-a].jpg", "is not a pattern"),
        ("drop", "BLURY", "BLURY is not a finding about one image; choose from DARK"),
        ("drop", "ODD_SIZE", "ODD_SIZE does not depend on one image alone; use --min_side"),
        ("drop", "NEAR_DUPLICATE", "use --dedupe near"),
        ("max_aspect", 0.5, r"write a ratio from 1, that of a square, such as 2.5, or 0 for none\."),
        ("max_aspect", float("nan"), "write a ratio from 1"),
        ("min_side", -1, "not a whole number"),
        ("license", "a\nb", "one line"),
        ("license", "  ", "blank"),
        ("license", "\udcff", "not valid UTF-8"),
        ("url", "example.com", "a web address such as"),
        ("url", "https://a b", "a web address such as"),
        ("url", "javascript:alert(1)", "a web address such as"),
        ("creator", "a;;b", "a name is empty"),
        ("creator", "org:", "a name is empty"),
        ("description", "\x1b[31m", "control character"),
        ("date_published", "31.3.2026", "a date such as"),
        ("date_published", "2026-02-30", "a date such as"),
    ],
)
def test_messages_about_settings_say_what_to_write(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)--{name} .*{message}"):
        ConvertSettings(input=("in",), **{name: value}).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "image", "0 images"),
        (1, "shard", "1 shard"),
        (3781, "image", "3,781 images"),
        (1, "class", "1 class"),
        (1234567, "class", "1,234,567 classes"),
        (2, "box", "2 boxes"),
        (2, "copy", "2 copies"),
        (2, "key", "2 keys"),
        (2, "more class", "2 more classes"),
    ],
)
def test_a_number_is_printed_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_a_noun_can_have_its_own_plural() -> None:
    assert counted(2, "stretch or record", "stretches or records") == "2 stretches or records"
    assert counted(1, "stretch or record", "stretches or records") == "1 stretch or record"
    assert (is_or_are(0), is_or_are(1), is_or_are(2)) == ("are", "is", "are")


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-9)


@pytest.mark.parametrize(
    ("shown", "value", "limit", "texts"),
    [
        (beside_limit, 0.508197, 0.2, ("0.508", "0.2")),
        (beside_limit, 0.010001, 0.01, ("0.010001", "0.01")),
        (beside_limit, 0.01, 0.01, ("0.01", "0.01")),
        (beside_limit, 0.28996, 0.29, ("0.28996", "0.29")),
        (beside_limit, 12_345.0, 4.0, ("12300", "4")),
        (beside_limit, 1.0, 0.0, ("1", "0")),
        (percent_beside_limit, 31 / 61, 0.2, ("51%", "20%")),
        (percent_beside_limit, 0.07, 0.06, ("7%", "6%")),
        (percent_beside_limit, 0.0100004, 0.01, ("1.00004%", "1%")),
        (percent_beside_limit, 2.0, 1.999, ("200%", "199.9%")),
    ],
)
def test_numbers_and_shares_get_enough_digits(
    shown: Callable[..., object], value: float, limit: float, texts: tuple[str, str]
) -> None:
    assert shown(value, limit) == texts


@given(NUMBERS, NUMBERS)
def test_printed_numbers_compare_like_the_numbers(value: float, limit: float) -> None:
    text, bound = beside_limit(value, limit)
    if abs(value - limit) > 1e-9 * max(abs(value), abs(limit)):
        assert (float(text) > float(bound), float(text) < float(bound)) == (value > limit, value < limit)


def test_enough_decimals_tell_numbers_apart() -> None:
    assert [decimals_apart(40.2, limit) for limit in (39.0, 40.0, 40.19, 40.2)][:3] == [0, 1, 2]


def test_control_characters_are_written_as_python_does() -> None:
    assert escape_controls("caf\u00e9 \U0001f600 \u200d") == "caf\u00e9 \U0001f600 \u200d"
    escaped = escape_controls("a\x1b[31m\n\t\x00\x7f\x9b\u2028\u202e")
    assert escaped == "a\\x1b[31m\\n\\t\\x00\\x7f\\x9b\\u2028\\u202e"
    assert escape_controls("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


def test_tables_texts_and_labels_escape_control_characters() -> None:
    out = io.StringIO()
    print_table(console(out), ("class", "n"), [["red\x1b[31m", 3]])
    console(out).print("two\nlines of \x1b]0;title\x07")
    assert "red\\x1b[31m" in out.getvalue() and "two\nlines of \\x1b]0;title\\x07" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert labels_txt({0: "a\nb", 1: "c\x1b[31md", 2: "e\tf"}) == "0:a\\nb\n1:c\\x1b[31md\n2:e\tf\n"


def test_the_title_of_a_table_is_one_line() -> None:
    out = io.StringIO()
    print_table(console(out), ("class",), [["a"]], title="  Vanished classes")
    assert out.getvalue().startswith("  Vanished classes\n")


@pytest.mark.parametrize(
    "file", ["train\x00-00000-of-00001.tfrecord", "train\x1b[31m.tfrecord", "../other/train.tfrecord"]
)
def test_shard_names_with_control_characters_or_folders_are_refused(file: str) -> None:
    document = {"format_version": 1, "splits": {"train": {"shards": [{"file": file}]}}}
    message = r"^x/dataset\.json lists a shard '.*', a name that no shard has"
    with pytest.raises(UsageError, match=message):
        Dataset.from_bytes(json.dumps(document).encode(), "x/dataset.json")


def test_addresses_are_left_out() -> None:
    with pytest.raises(OSError, match="0x") as caught:
        Image.open(io.BytesIO(b"no picture"))
    assert words_of(caught.value) == "cannot identify image file"
    assert words_of(ValueError("<function <lambda> at 0x7f8a00> failed")) == "<function <lambda> > failed"
    assert words_of(ValueError("unsupported marker 0xd8")) == "unsupported marker 0xd8"


@pytest.mark.parametrize(
    "path", ["/var/tmp/tmpa1b2c3d4", "/data/out/_work/spool/0123", "out/_work/spool/0123"]
)
def test_names_of_temporary_files_are_left_out(path: str) -> None:
    words = words_of(OSError(f"cannot open '{path}': no magic bytes"))
    assert words == "cannot open 'its file': no magic bytes"
    assert words_of(OSError("cannot open '/data/tmp/a.png'")) == "cannot open '/data/tmp/a.png'"


def test_a_text_has_one_line_that_is_not_too_long() -> None:
    assert words_of(zipfile.BadZipFile("a\n  b\t")) == "a b"
    assert words_of(EOFError()) == "EOFError"
    assert len(words_of(ValueError("x" * 1000))) == 200
