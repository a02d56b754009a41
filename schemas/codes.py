"""All codes that appear in files, on the screen and in exit statuses."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum, auto
from typing import Self

#: Beam's namespace for the metrics that every runner counts during a conversion. Counters: `images_read`,
#: `images_on_background` (images that show the background color), `bytes_read`, `bytes_written`,
#: `files_OUTCOME`, `quarantined_REASON`, `records_SPLIT`. Distributions with one value per image:
#: `source_bytes`, `decode_us` (microseconds).
METRICS_NAMESPACE = "shardwright"


class ExitCode(IntEnum):
    """Exit status of a command."""

    DONE = 0
    REFUSED = 1  # the data did not pass: findings, too many bad images, a gate
    USAGE = 2  # the command, its settings or its input are wrong; nothing was written
    ENGINE = 3  # the engine, the storage or the machine failed
    INTERRUPTED = 130


class Outcome(StrEnum):
    """Outcome for one listed file."""

    WRITTEN = "written"
    QUARANTINED = "quarantined"
    FILTERED = "filtered"
    DEDUPLICATED = "deduplicated"


class _Group(Enum):
    """What findings have in common."""

    #: The bytes differ from those that `dataset.json` lists.
    DAMAGE = auto()
    #: The names of the files show it.
    DIRECTORY = auto()
    #: Framing, ledgers and the files beside the shards show it.
    FILES = auto()
    #: The ledgers prove it for equal bytes. `--quality` also finds it for pictures that have the same pixels
    #: or look the same.
    EQUAL_PICTURES = auto()
    #: Only decoded images show it.
    DECODED = auto()
    #: A comparison with the source shows it, which needs `--against`.
    SOURCE = auto()
    #: It is about the quality of one image, and does not depend on others.
    ONE_PICTURE = auto()
    #: It is about the quality of images or classes that are compared with others.
    QUALITY = auto()
    #: It is a warning unless a gate names it.
    WARNING = auto()
    #: It is a note unless a gate names it.
    NOTE = auto()


class _Code(StrEnum):
    """A code, with its meaning as half a sentence, which reports show, and with the groups of a finding."""

    _value_: str
    meaning: str
    groups: frozenset[_Group]

    def __new__(cls, value: str, meaning: str = "", *groups: _Group) -> Self:
        """Makes the code; its value alone looks one up."""
        code = str.__new__(cls, value)
        code._value_, code.meaning, code.groups = value, meaning, frozenset(groups)
        return code


class FilterReason(_Code):
    """Reason why a listed file is not a candidate for the dataset."""

    DOTFILE = "dotfile", "a hidden file"
    NOT_AN_IMAGE = "not_an_image", "not an image, and not named like one"
    UNSUPPORTED_KIND = "unsupported_kind", "a kind of file that is not read"
    SPECIAL_FILE = "special_file", "not a regular file"
    SYMLINK_LOOP = "symlink_loop", "a link that leads to itself"
    LIMIT = "limit", "beyond --limit"
    NESTED_ARCHIVE = "nested_archive", "an archive inside an archive"
    LABEL_NOT_KEPT = "label_not_kept", "of a class that was not requested"
    NOT_LISTED = "not_listed", "not in the source's own lists"
    SKIPPED_FORMAT = "skipped_format", "of a format that --skip_formats leaves out"
    OUTSIDE_SPLITS = "outside_splits", "outside the split folders"
    DROPPED_BY_MAP = "dropped_by_map", "the function of --map left it out"
    # Images that a setting of the same name leaves out.
    EXCLUDED = "excluded", "listed or matched by --exclude"
    NOT_INCLUDED = "not_included", "not listed or matched by --include"
    MIN_BYTES = "min_bytes", "fewer bytes than --min_bytes"
    MIN_SIDE = "min_side", "a side is shorter than --min_side"
    MAX_ASPECT = "max_aspect", "longer and narrower than --max_aspect"
    MAX_PER_CLASS = "max_per_class", "beyond --max_per_class"
    # Images that `--drop` leaves out, by the finding of the same name.
    DARK = "dark", "very dark (--drop DARK)"
    LIGHT = "light", "very light (--drop LIGHT)"
    BLURRY = "blurry", "blurred (--drop BLURRY)"
    LOW_INFORMATION = "low_information", "shows almost nothing (--drop LOW_INFORMATION)"
    ODD_ASPECT_RATIO = "odd_aspect_ratio", "very long and narrow as stored (--drop ODD_ASPECT_RATIO)"
    GRAYSCALE = "grayscale", "without colors (--drop GRAYSCALE)"


#: Reasons with which settings leave out images when they are listed.
BY_LISTING = (FilterReason.EXCLUDED, FilterReason.NOT_INCLUDED, FilterReason.MIN_BYTES)


class Stage(StrEnum):
    """Step at which an image was quarantined, or was left out although it could be read."""

    LIST = "list"
    READ = "read"
    DECODE = "decode"
    MAP = "map"
    TRANSFORM = "transform"
    ENCODE = "encode"
    BUILD = "build"


class QuarantineReason(_Code):
    """Reason why an image was quarantined."""

    EMPTY_FILE = "EMPTY_FILE", "the file has no bytes"
    NOT_AN_IMAGE = "NOT_AN_IMAGE", "the bytes are not an image"
    UNSUPPORTED_FORMAT = "UNSUPPORTED_FORMAT", "a format that is not read"
    TRUNCATED = "TRUNCATED", "the file ends too early"
    CORRUPT = "CORRUPT", "the file is damaged"
    TOO_MANY_PIXELS = "TOO_MANY_PIXELS", "more pixels than --max_pixels allows"
    TOO_LARGE = "TOO_LARGE", "more bytes than --max_bytes allows"
    UNREADABLE = "UNREADABLE", "the file could not be opened"
    CHECKSUM_MISMATCH = "CHECKSUM_MISMATCH", "not the bytes that the source promises"
    BAD_ANNOTATION = "BAD_ANNOTATION", "its boxes or masks cannot be understood"
    UNKNOWN_LABEL = "UNKNOWN_LABEL", "its class is not in the given list"
    BAD_ROW = "BAD_ROW", "its row in the manifest cannot be understood"
    WRONG_CHANNELS = "WRONG_CHANNELS", "it has another number of channels than --channels"
    WRONG_DTYPE = "WRONG_DTYPE", "the layout's dtype cannot hold its samples"
    UNSAFE_MEMBER = "UNSAFE_MEMBER", "a member of an archive that leads out of it"
    # A file has more parts than a decoder can process in seconds (`schemas/bounds.py`, setting `bounds`).
    TOO_MANY_SCANS = "TOO_MANY_SCANS", "a JPEG with more scans than any encoder writes"
    TOO_MANY_SEGMENTS = "TOO_MANY_SEGMENTS", "a JPEG with more segments than any program writes"
    TOO_MANY_EXIF_SEGMENTS = (
        "TOO_MANY_EXIF_SEGMENTS",
        "a JPEG with more Exif segments than any program writes",
    )
    TOO_MANY_STRAY_BYTES = "TOO_MANY_STRAY_BYTES", "a JPEG, GIF or BMP with many unused bytes"
    TOO_MANY_BLOCKS = "TOO_MANY_BLOCKS", "a GIF with more blocks of pixels than any program writes"
    TOO_MANY_COMMENT_BLOCKS = (
        "TOO_MANY_COMMENT_BLOCKS",
        "a GIF with more blocks of comments than any program writes",
    )
    TOO_MANY_EXTENSION_BLOCKS = (
        "TOO_MANY_EXTENSION_BLOCKS",
        "a GIF with more blocks of extensions than any program writes",
    )
    TOO_MANY_CHUNKS = "TOO_MANY_CHUNKS", "a PNG or WebP with more chunks than any program writes"
    TOO_MANY_TAGS = "TOO_MANY_TAGS", "Exif data or a TIFF with more tags than any program writes"
    TOO_MANY_TAG_VALUES = (
        "TOO_MANY_TAG_VALUES",
        "Exif data or a TIFF with more tag values than any program writes",
    )
    TOO_MANY_STRIPS = "TOO_MANY_STRIPS", "a TIFF with more strips or tiles than any program writes"
    TOO_MANY_SHARED_BYTES = "TOO_MANY_SHARED_BYTES", "a TIFF whose tags or strips share their bytes too often"
    TOO_MANY_RUNS = "TOO_MANY_RUNS", "a run-length encoded BMP with too many pixels or bytes"
    TOO_MANY_COLUMNS = "TOO_MANY_COLUMNS", "a run-length encoded BMP with too many columns"
    TOO_MANY_COMMENTS = "TOO_MANY_COMMENTS", "a PNM with a longer header than any program writes"
    TOO_MANY_BOXES = "TOO_MANY_BOXES", "a HEIF, JPEG 2000 or JPEG XL with more boxes than any program writes"
    TOO_MANY_TILES = "TOO_MANY_TILES", "a HEIF or JPEG 2000 with more tiles than any program writes"
    TOO_MANY_CODE_BLOCKS = "TOO_MANY_CODE_BLOCKS", "a JPEG 2000 with more code blocks than any program writes"
    TOO_MANY_PACKETS = "TOO_MANY_PACKETS", "a JPEG 2000 with more packets than any program writes"
    TOO_MUCH_MEMORY = (
        "TOO_MUCH_MEMORY",
        "decoding takes far more memory than the pixels that --max_pixels allows",
    )
    DECODER_CRASHED = "DECODER_CRASHED", "the decoder crashed on it"
    # Reserved: the clock never decides whether an image is left out.
    DECODE_TIMEOUT = "DECODE_TIMEOUT", "decoding took too long"
    MAP_FAILED = "MAP_FAILED", "the function of --map failed on it"
    DAMAGED_RECORD = "DAMAGED_RECORD", "its record could not be saved from a damaged shard"


class Severity(StrEnum):
    """Severity of a finding: it fails the validation, is a warning, or is only counted and shown."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FindingCode(_Code):
    """Code of a finding of a validation."""

    SHARD_TRUNCATED = "SHARD_TRUNCATED", "a shard ends in the middle of a record", _Group.DAMAGE
    LENGTH_CRC = "LENGTH_CRC", "the checksum of a record's length is wrong", _Group.DAMAGE
    DATA_CRC = "DATA_CRC", "the checksum of a record's bytes is wrong", _Group.DAMAGE
    UNPARSEABLE = "UNPARSEABLE", "a record is not a tf.train.Example"
    MISSING_FEATURE = "MISSING_FEATURE", "a record lacks a feature that all should have"
    WRONG_TYPE = "WRONG_TYPE", "a feature does not have the expected type"
    WRONG_SHAPE = "WRONG_SHAPE", "a feature has too many or too few values"
    NOT_UTF8 = "NOT_UTF8", "a text is not UTF-8"
    NOT_FINITE = "NOT_FINITE", "a number is infinite or NaN"
    WRONG_VALUE = "WRONG_VALUE", "a value differs from the one in its layout or record"
    UNDECODABLE = "UNDECODABLE", "an image cannot be decoded", _Group.DECODED
    SIZE_MISMATCH = "SIZE_MISMATCH", "an image's size differs from its record", _Group.DECODED
    FORMAT_MISMATCH = "FORMAT_MISMATCH", "an image's format differs from its record", _Group.DECODED
    LABEL_RANGE = "LABEL_RANGE", "a class id is outside the list of classes"
    LABEL_TEXT = "LABEL_TEXT", "a class name does not belong to the class id"
    BOX_RANGE = "BOX_RANGE", "a box reaches beyond its image"
    BOX_ORDER = "BOX_ORDER", "a box ends before it begins"
    KEYPOINT_RANGE = "KEYPOINT_RANGE", "a key point lies outside its image, or has an unknown visibility"
    MASK_MISMATCH = "MASK_MISMATCH", "a mask does not fit its image or its classes", _Group.DECODED
    OBJECTS_DROPPED = (
        "OBJECTS_DROPPED",
        "a record does not have all objects of its source",
        _Group.FILES,
        _Group.WARNING,
    )
    PRIVATE_METADATA = (
        "PRIVATE_METADATA",
        "an image file states a position, a serial number of a camera, or a name",
        _Group.DECODED,
        _Group.WARNING,
    )
    LENGTH_MISMATCH = "LENGTH_MISMATCH", "lists that go together differ in length"
    DUPLICATE_KEY = "DUPLICATE_KEY", "two records have the same key", _Group.FILES
    SPLIT_LEAKAGE = (
        "SPLIT_LEAKAGE",
        "the same or nearly the same image is in two splits",
        _Group.EQUAL_PICTURES,
    )
    SHARD_MISSING = (
        "SHARD_MISSING",
        "a shard that dataset.json lists is missing",
        _Group.DAMAGE,
        _Group.DIRECTORY,
    )
    SHARD_UNEXPECTED = "SHARD_UNEXPECTED", "a shard is not listed in dataset.json", _Group.DIRECTORY
    SHARD_CHECKSUM = "SHARD_CHECKSUM", "a shard was changed after it was written", _Group.DAMAGE
    COUNT_MISMATCH = "COUNT_MISMATCH", "counts do not add up", _Group.FILES
    INDEX_MISMATCH = "INDEX_MISMATCH", "an index does not fit its shard", _Group.FILES
    LEDGER_MISMATCH = "LEDGER_MISMATCH", "a shard's ledger does not fit its shard"
    SIDECAR_MISMATCH = (
        "SIDECAR_MISMATCH",
        "a file for other tools was changed after it was written",
        _Group.FILES,
    )
    DATASET_MISMATCH = "DATASET_MISMATCH", "a field of dataset.json disagrees with the rest of the dataset"
    QUARANTINE_MISMATCH = "QUARANTINE_MISMATCH", "quarantine.jsonl differs from the ledgers"
    REPORT_MISMATCH = (
        "REPORT_MISMATCH",
        "a file about the dataset was changed after it was written",
        _Group.WARNING,
    )
    RECORD_ORDER = "RECORD_ORDER", "a record is not where the plan places it"
    NOT_COMPARED = "NOT_COMPARED", "another version wrote it, so it could not be compared", _Group.NOTE
    EMPTY_SPLIT = "EMPTY_SPLIT", "a split has no records", _Group.DIRECTORY, _Group.WARNING
    SHARD_REPAIRED = (
        "SHARD_REPAIRED",
        "the shard was damaged in the previous version and was rebuilt from the source",
        _Group.FILES,
        _Group.WARNING,
    )  # only a rebuild finds it
    LABEL_CONFLICT = "LABEL_CONFLICT", "equal or similar images have different classes", _Group.EQUAL_PICTURES
    # Found by a comparison with the source of the dataset.
    SOURCE_MISSING = "SOURCE_MISSING", "the source has no image for a record", _Group.SOURCE
    RECORD_MISSING = "RECORD_MISSING", "the dataset has no record for an image of the source", _Group.SOURCE
    SOURCE_CHANGED = "SOURCE_CHANGED", "the source changed since the record was made", _Group.SOURCE
    SOURCE_LABEL = "SOURCE_LABEL", "the source says another class", _Group.SOURCE
    KEPT_BYTES = "KEPT_BYTES", "bytes that should be the source's own are not", _Group.SOURCE
    # About the quality of images and classes.
    EXACT_DUPLICATE = "EXACT_DUPLICATE", "two images are the same", _Group.QUALITY
    NEAR_DUPLICATE = "NEAR_DUPLICATE", "two images look nearly the same", _Group.QUALITY
    DARK = "DARK", "an image is very dark", _Group.ONE_PICTURE
    LIGHT = "LIGHT", "an image is very light", _Group.ONE_PICTURE
    BLURRY = "BLURRY", "an image is blurred", _Group.ONE_PICTURE
    LOW_INFORMATION = "LOW_INFORMATION", "an image shows almost nothing", _Group.ONE_PICTURE
    ODD_SIZE = "ODD_SIZE", "an image is far larger or smaller than most", _Group.QUALITY
    ODD_ASPECT_RATIO = "ODD_ASPECT_RATIO", "an image is very long and narrow", _Group.ONE_PICTURE
    GRAYSCALE = "GRAYSCALE", "an image has no colors", _Group.ONE_PICTURE
    CLASS_IMBALANCE = "CLASS_IMBALANCE", "classes are of very different sizes", _Group.QUALITY
    TINY_CLASS = "TINY_CLASS", "a class has very few records", _Group.QUALITY
    # Found by a gate.
    EXPECTATION = "EXPECTATION", "one of your expectations is not met", _Group.DIRECTORY


def _codes_of(*groups: _Group) -> frozenset[FindingCode]:
    return frozenset(code for code in FindingCode if not code.groups.isdisjoint(groups))


#: Findings of a comparison with the source.
OF_SOURCE = _codes_of(_Group.SOURCE)
OF_EQUAL_PICTURES = _codes_of(_Group.EQUAL_PICTURES)
#: Findings about the quality of one image, in order.
OF_ONE_PICTURE = tuple(code for code in FindingCode if _Group.ONE_PICTURE in code.groups)
#: Findings about the quality of images and classes, which need `--quality`.
QUALITY = _codes_of(_Group.ONE_PICTURE, _Group.QUALITY)
DECODED = _codes_of(_Group.DECODED)
DAMAGES = _codes_of(_Group.DAMAGE)
#: Findings that need no Examples.
OF_FILES = _codes_of(_Group.FILES, _Group.DIRECTORY, _Group.DAMAGE, _Group.EQUAL_PICTURES)
WARNINGS = _codes_of(_Group.WARNING, _Group.EQUAL_PICTURES)
#: Findings that are notes: real datasets always have such images, and files that another version wrote cannot
#: be computed again.
NOTES = _codes_of(_Group.NOTE, _Group.ONE_PICTURE, _Group.QUALITY)

#: Code or reason -> its meaning.
MEANINGS: Mapping[str, str] = {
    code.value: code.meaning for code in (*FindingCode, *QuarantineReason, *FilterReason)
}


_ALL = frozenset(FindingCode)
#: Found in records without decoding an image.
_OF_EXAMPLES = _ALL - DECODED - QUALITY - OF_SOURCE


class CheckDepth(IntEnum):
    """Depth of a check. Each depth includes those before it."""

    NONE = 0  # only the names of the files, and the ledgers
    FRAMES = 1  # framing, checksums, counts: `convert --verify fast`
    FAST = 2  # every Example: `validate --fast`
    FULL = 3  # every image decoded
    QUALITY = 4  # measurements of every image

    @property
    def word(self) -> str:
        """The word for the depth in stored files."""
        return self.name.lower()

    @staticmethod
    def of_verification(verify: str) -> CheckDepth:
        """Returns the depth for a value of `--verify`, where `fast` checks only frames, not records."""
        return CheckDepth.FRAMES if verify == "fast" else CheckDepth[verify.upper()]


def time_in_words(time: str) -> str:
    """Returns the stored time of a check as people write it: `2026-10-05 14:03 UTC`."""
    return f"{time[:10]} {time[11:16]} UTC" if len(time) >= 16 else time or "an unknown time"


_SOUGHT = {
    CheckDepth.NONE: _codes_of(_Group.DIRECTORY) | OF_EQUAL_PICTURES | {FindingCode.OBJECTS_DROPPED},
    CheckDepth.FRAMES: OF_FILES,
    CheckDepth.FAST: _OF_EXAMPLES,
    CheckDepth.FULL: _OF_EXAMPLES | DECODED,
    CheckDepth.QUALITY: _ALL - OF_SOURCE,
}


def sought(depth: CheckDepth, with_source: bool = False) -> frozenset[FindingCode]:
    """Returns the codes that a check looks for.

    Args:
      depth: Depth of the check.
      with_source: Whether the check compares the dataset with its source.
    """
    return _SOUGHT[depth] | OF_SOURCE if with_source else _SOUGHT[depth]


def found_completely(depth: CheckDepth, with_source: bool = False) -> frozenset[FindingCode]:
    """Returns the codes for which a deeper check finds nothing more.

    Args:
      depth: Depth of the check.
      with_source: Whether the check compares the dataset with its source.
    """
    codes = sought(depth, with_source and depth >= CheckDepth.FULL)
    return codes if depth is CheckDepth.QUALITY else codes - OF_EQUAL_PICTURES
