"""All codes that appear in files, on the screen and in exit statuses."""

from __future__ import annotations

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


class FilterReason(StrEnum):
    """Reason why a listed file is not a candidate for the dataset."""

    DOTFILE = "dotfile"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_KIND = "unsupported_kind"
    SPECIAL_FILE = "special_file"
    SYMLINK_LOOP = "symlink_loop"
    LIMIT = "limit"
    NESTED_ARCHIVE = "nested_archive"
    LABEL_NOT_KEPT = "label_not_kept"
    NOT_LISTED = "not_listed"  # none of the source's own lists names it
    SKIPPED_FORMAT = "skipped_format"  # of a format that `--skip_formats` names
    OUTSIDE_SPLITS = "outside_splits"  # outside the split folders, with `--folders splits`
    DROPPED_BY_MAP = "dropped_by_map"  # the function of `--map` left it out
    # Images that a setting of the same name leaves out.
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not_included"
    MIN_BYTES = "min_bytes"
    MIN_SIDE = "min_side"
    MAX_ASPECT = "max_aspect"
    MAX_PER_CLASS = "max_per_class"
    # Images that `--drop` leaves out, by the finding of the same name.
    DARK = "dark"
    LIGHT = "light"
    BLURRY = "blurry"
    LOW_INFORMATION = "low_information"
    ODD_ASPECT_RATIO = "odd_aspect_ratio"
    GRAYSCALE = "grayscale"


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


class QuarantineReason(StrEnum):
    """Reason why an image was quarantined."""

    EMPTY_FILE = "EMPTY_FILE"
    NOT_AN_IMAGE = "NOT_AN_IMAGE"
    UNSUPPORTED_FORMAT = "UNSUPPORTED_FORMAT"
    TRUNCATED = "TRUNCATED"
    CORRUPT = "CORRUPT"
    TOO_MANY_PIXELS = "TOO_MANY_PIXELS"
    TOO_LARGE = "TOO_LARGE"
    UNREADABLE = "UNREADABLE"
    CHECKSUM_MISMATCH = "CHECKSUM_MISMATCH"
    BAD_ANNOTATION = "BAD_ANNOTATION"
    UNKNOWN_LABEL = "UNKNOWN_LABEL"
    BAD_ROW = "BAD_ROW"
    WRONG_CHANNELS = "WRONG_CHANNELS"  # another number of channels than `--channels`
    WRONG_DTYPE = "WRONG_DTYPE"  # samples that the layout's type cannot hold
    UNSAFE_MEMBER = "UNSAFE_MEMBER"
    # A file has more parts than a decoder can process in seconds (`schemas/bounds.py`, setting `bounds`).
    TOO_MANY_SCANS = "TOO_MANY_SCANS"
    TOO_MANY_SEGMENTS = "TOO_MANY_SEGMENTS"
    TOO_MANY_EXIF_SEGMENTS = "TOO_MANY_EXIF_SEGMENTS"
    TOO_MANY_STRAY_BYTES = "TOO_MANY_STRAY_BYTES"
    TOO_MANY_BLOCKS = "TOO_MANY_BLOCKS"
    TOO_MANY_COMMENT_BLOCKS = "TOO_MANY_COMMENT_BLOCKS"
    TOO_MANY_EXTENSION_BLOCKS = "TOO_MANY_EXTENSION_BLOCKS"
    TOO_MANY_CHUNKS = "TOO_MANY_CHUNKS"
    TOO_MANY_TAGS = "TOO_MANY_TAGS"
    TOO_MANY_TAG_VALUES = "TOO_MANY_TAG_VALUES"
    TOO_MANY_STRIPS = "TOO_MANY_STRIPS"
    TOO_MANY_SHARED_BYTES = "TOO_MANY_SHARED_BYTES"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    TOO_MANY_COLUMNS = "TOO_MANY_COLUMNS"
    TOO_MANY_COMMENTS = "TOO_MANY_COMMENTS"
    TOO_MANY_BOXES = "TOO_MANY_BOXES"
    TOO_MANY_TILES = "TOO_MANY_TILES"
    TOO_MANY_CODE_BLOCKS = "TOO_MANY_CODE_BLOCKS"
    TOO_MANY_PACKETS = "TOO_MANY_PACKETS"
    TOO_MUCH_MEMORY = "TOO_MUCH_MEMORY"
    DECODER_CRASHED = "DECODER_CRASHED"  # the decoder ended its worker process
    DECODE_TIMEOUT = "DECODE_TIMEOUT"  # reserved: the clock never decides whether an image is left out
    MAP_FAILED = "MAP_FAILED"  # the function of `--map` raised an exception
    DAMAGED_RECORD = "DAMAGED_RECORD"  # a record of a damaged dataset, which salvage left out


class Severity(StrEnum):
    """Severity of a finding: it fails the validation, is a warning, or is only counted and shown."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


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


class FindingCode(StrEnum):
    """Code of a finding of a validation, and its groups."""

    _value_: str
    groups: frozenset[_Group]

    def __new__(cls, value: str, *groups: _Group) -> Self:
        """Makes the code with its groups."""
        code = str.__new__(cls, value)
        code._value_, code.groups = value, frozenset(groups)
        return code

    SHARD_TRUNCATED = "SHARD_TRUNCATED", _Group.DAMAGE
    LENGTH_CRC = "LENGTH_CRC", _Group.DAMAGE
    DATA_CRC = "DATA_CRC", _Group.DAMAGE
    UNPARSEABLE = "UNPARSEABLE"
    MISSING_FEATURE = "MISSING_FEATURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    NOT_UTF8 = "NOT_UTF8"
    NOT_FINITE = "NOT_FINITE"
    WRONG_VALUE = "WRONG_VALUE"
    UNDECODABLE = "UNDECODABLE", _Group.DECODED
    SIZE_MISMATCH = "SIZE_MISMATCH", _Group.DECODED
    FORMAT_MISMATCH = "FORMAT_MISMATCH", _Group.DECODED
    LABEL_RANGE = "LABEL_RANGE"
    LABEL_TEXT = "LABEL_TEXT"
    BOX_RANGE = "BOX_RANGE"
    BOX_ORDER = "BOX_ORDER"
    KEYPOINT_RANGE = "KEYPOINT_RANGE"
    MASK_MISMATCH = "MASK_MISMATCH", _Group.DECODED
    OBJECTS_DROPPED = "OBJECTS_DROPPED", _Group.FILES, _Group.WARNING
    PRIVATE_METADATA = "PRIVATE_METADATA", _Group.DECODED, _Group.WARNING
    LENGTH_MISMATCH = "LENGTH_MISMATCH"
    DUPLICATE_KEY = "DUPLICATE_KEY", _Group.FILES
    SPLIT_LEAKAGE = "SPLIT_LEAKAGE", _Group.EQUAL_PICTURES
    SHARD_MISSING = "SHARD_MISSING", _Group.DAMAGE, _Group.DIRECTORY
    SHARD_UNEXPECTED = "SHARD_UNEXPECTED", _Group.DIRECTORY
    SHARD_CHECKSUM = "SHARD_CHECKSUM", _Group.DAMAGE
    COUNT_MISMATCH = "COUNT_MISMATCH", _Group.FILES
    INDEX_MISMATCH = "INDEX_MISMATCH", _Group.FILES
    LEDGER_MISMATCH = "LEDGER_MISMATCH"
    SIDECAR_MISMATCH = "SIDECAR_MISMATCH", _Group.FILES
    DATASET_MISMATCH = "DATASET_MISMATCH"
    QUARANTINE_MISMATCH = "QUARANTINE_MISMATCH"
    REPORT_MISMATCH = "REPORT_MISMATCH", _Group.WARNING
    RECORD_ORDER = "RECORD_ORDER"
    NOT_COMPARED = "NOT_COMPARED", _Group.NOTE
    EMPTY_SPLIT = "EMPTY_SPLIT", _Group.DIRECTORY, _Group.WARNING
    SHARD_REPAIRED = "SHARD_REPAIRED", _Group.FILES, _Group.WARNING  # only a rebuild finds it
    LABEL_CONFLICT = "LABEL_CONFLICT", _Group.EQUAL_PICTURES
    # Found by a comparison with the source of the dataset.
    SOURCE_MISSING = "SOURCE_MISSING", _Group.SOURCE
    RECORD_MISSING = "RECORD_MISSING", _Group.SOURCE
    SOURCE_CHANGED = "SOURCE_CHANGED", _Group.SOURCE
    SOURCE_LABEL = "SOURCE_LABEL", _Group.SOURCE
    KEPT_BYTES = "KEPT_BYTES", _Group.SOURCE
    # About the quality of images and classes.
    EXACT_DUPLICATE = "EXACT_DUPLICATE", _Group.QUALITY
    NEAR_DUPLICATE = "NEAR_DUPLICATE", _Group.QUALITY
    DARK = "DARK", _Group.ONE_PICTURE
    LIGHT = "LIGHT", _Group.ONE_PICTURE
    BLURRY = "BLURRY", _Group.ONE_PICTURE
    LOW_INFORMATION = "LOW_INFORMATION", _Group.ONE_PICTURE
    ODD_SIZE = "ODD_SIZE", _Group.QUALITY
    ODD_ASPECT_RATIO = "ODD_ASPECT_RATIO", _Group.ONE_PICTURE
    GRAYSCALE = "GRAYSCALE", _Group.ONE_PICTURE
    CLASS_IMBALANCE = "CLASS_IMBALANCE", _Group.QUALITY
    TINY_CLASS = "TINY_CLASS", _Group.QUALITY
    # Found by a gate.
    EXPECTATION = "EXPECTATION", _Group.DIRECTORY


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
#: Findings that need only the names of the files.
OF_DIRECTORY = _codes_of(_Group.DIRECTORY)
#: Findings that need no Examples.
OF_FILES = _codes_of(_Group.FILES, _Group.DIRECTORY, _Group.DAMAGE, _Group.EQUAL_PICTURES)
WARNINGS = _codes_of(_Group.WARNING, _Group.EQUAL_PICTURES)
#: Findings that are notes: real datasets always have such images, and files that another version wrote cannot
#: be computed again.
NOTES = _codes_of(_Group.NOTE, _Group.ONE_PICTURE, _Group.QUALITY)
