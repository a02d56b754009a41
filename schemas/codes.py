"""All codes that appear in files, on the screen and in exit statuses."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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


class FindingCode(StrEnum):
    """Code of a finding of a validation."""

    SHARD_TRUNCATED = "SHARD_TRUNCATED"
    LENGTH_CRC = "LENGTH_CRC"
    DATA_CRC = "DATA_CRC"
    UNPARSEABLE = "UNPARSEABLE"
    MISSING_FEATURE = "MISSING_FEATURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    NOT_UTF8 = "NOT_UTF8"
    NOT_FINITE = "NOT_FINITE"
    WRONG_VALUE = "WRONG_VALUE"
    UNDECODABLE = "UNDECODABLE"
    SIZE_MISMATCH = "SIZE_MISMATCH"
    FORMAT_MISMATCH = "FORMAT_MISMATCH"
    LABEL_RANGE = "LABEL_RANGE"
    LABEL_TEXT = "LABEL_TEXT"
    BOX_RANGE = "BOX_RANGE"
    BOX_ORDER = "BOX_ORDER"
    KEYPOINT_RANGE = "KEYPOINT_RANGE"
    MASK_MISMATCH = "MASK_MISMATCH"
    OBJECTS_DROPPED = "OBJECTS_DROPPED"
    PRIVATE_METADATA = "PRIVATE_METADATA"
    LENGTH_MISMATCH = "LENGTH_MISMATCH"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    SPLIT_LEAKAGE = "SPLIT_LEAKAGE"
    SHARD_MISSING = "SHARD_MISSING"
    SHARD_UNEXPECTED = "SHARD_UNEXPECTED"
    SHARD_CHECKSUM = "SHARD_CHECKSUM"
    COUNT_MISMATCH = "COUNT_MISMATCH"
    INDEX_MISMATCH = "INDEX_MISMATCH"
    LEDGER_MISMATCH = "LEDGER_MISMATCH"
    SIDECAR_MISMATCH = "SIDECAR_MISMATCH"
    DATASET_MISMATCH = "DATASET_MISMATCH"
    QUARANTINE_MISMATCH = "QUARANTINE_MISMATCH"
    REPORT_MISMATCH = "REPORT_MISMATCH"
    RECORD_ORDER = "RECORD_ORDER"
    NOT_COMPARED = "NOT_COMPARED"
    EMPTY_SPLIT = "EMPTY_SPLIT"
    SHARD_REPAIRED = "SHARD_REPAIRED"  # a shard of the previous version; only a rebuild finds it
    LABEL_CONFLICT = "LABEL_CONFLICT"
    # Found by a comparison with the source of the dataset.
    SOURCE_MISSING = "SOURCE_MISSING"
    RECORD_MISSING = "RECORD_MISSING"
    SOURCE_CHANGED = "SOURCE_CHANGED"
    SOURCE_LABEL = "SOURCE_LABEL"
    KEPT_BYTES = "KEPT_BYTES"
    # About the quality of images and classes.
    EXACT_DUPLICATE = "EXACT_DUPLICATE"
    NEAR_DUPLICATE = "NEAR_DUPLICATE"
    DARK = "DARK"
    LIGHT = "LIGHT"
    BLURRY = "BLURRY"
    LOW_INFORMATION = "LOW_INFORMATION"
    ODD_SIZE = "ODD_SIZE"
    ODD_ASPECT_RATIO = "ODD_ASPECT_RATIO"
    GRAYSCALE = "GRAYSCALE"
    CLASS_IMBALANCE = "CLASS_IMBALANCE"
    TINY_CLASS = "TINY_CLASS"
    # Found by a gate.
    EXPECTATION = "EXPECTATION"


#: Findings of a comparison with the source, which needs `--against`.
OF_SOURCE = frozenset(
    {
        FindingCode.SOURCE_MISSING,
        FindingCode.RECORD_MISSING,
        FindingCode.SOURCE_CHANGED,
        FindingCode.SOURCE_LABEL,
        FindingCode.KEPT_BYTES,
    }
)
#: Findings that the ledgers prove for equal bytes. `--quality` also finds them for pictures that have the
#: same pixels or look the same.
OF_EQUAL_PICTURES = frozenset({FindingCode.SPLIT_LEAKAGE, FindingCode.LABEL_CONFLICT})
#: Findings about the quality of images and classes, which need `--quality`.
QUALITY = frozenset(
    {
        FindingCode.EXACT_DUPLICATE,
        FindingCode.NEAR_DUPLICATE,
        FindingCode.DARK,
        FindingCode.LIGHT,
        FindingCode.BLURRY,
        FindingCode.LOW_INFORMATION,
        FindingCode.ODD_SIZE,
        FindingCode.ODD_ASPECT_RATIO,
        FindingCode.GRAYSCALE,
        FindingCode.CLASS_IMBALANCE,
        FindingCode.TINY_CLASS,
    }
)
#: Findings about the quality of one image, which do not depend on others.
OF_ONE_PICTURE = (
    FindingCode.DARK,
    FindingCode.LIGHT,
    FindingCode.BLURRY,
    FindingCode.LOW_INFORMATION,
    FindingCode.ODD_ASPECT_RATIO,
    FindingCode.GRAYSCALE,
)
#: Findings about images, which need decoded images.
DECODED = frozenset(
    {
        FindingCode.UNDECODABLE,
        FindingCode.SIZE_MISMATCH,
        FindingCode.FORMAT_MISMATCH,
        FindingCode.MASK_MISMATCH,
        FindingCode.PRIVATE_METADATA,
    }
)
#: Findings that mean that the bytes differ from those that `dataset.json` lists.
DAMAGES = frozenset(
    {
        FindingCode.SHARD_MISSING,
        FindingCode.SHARD_TRUNCATED,
        FindingCode.SHARD_CHECKSUM,
        FindingCode.LENGTH_CRC,
        FindingCode.DATA_CRC,
    }
)
#: Findings that need only the names of the files.
OF_DIRECTORY = frozenset(
    {
        FindingCode.SHARD_MISSING,
        FindingCode.SHARD_UNEXPECTED,
        FindingCode.EMPTY_SPLIT,
        FindingCode.EXPECTATION,
    }
)
#: Findings that need no Examples: framing, ledgers and the files beside the shards.
OF_FILES = frozenset(
    {
        FindingCode.SHARD_TRUNCATED,
        FindingCode.LENGTH_CRC,
        FindingCode.DATA_CRC,
        FindingCode.DUPLICATE_KEY,
        FindingCode.SPLIT_LEAKAGE,
        FindingCode.LABEL_CONFLICT,
        FindingCode.OBJECTS_DROPPED,
        FindingCode.SHARD_MISSING,
        FindingCode.SHARD_UNEXPECTED,
        FindingCode.SHARD_CHECKSUM,
        FindingCode.SHARD_REPAIRED,
        FindingCode.COUNT_MISMATCH,
        FindingCode.INDEX_MISMATCH,
        FindingCode.SIDECAR_MISMATCH,
        FindingCode.EMPTY_SPLIT,
        FindingCode.EXPECTATION,
    }
)
#: Findings that are warnings unless a gate names them.
WARNINGS = OF_EQUAL_PICTURES | {
    FindingCode.EMPTY_SPLIT,
    FindingCode.OBJECTS_DROPPED,
    FindingCode.PRIVATE_METADATA,
    FindingCode.SHARD_REPAIRED,
    FindingCode.REPORT_MISMATCH,
}
#: Findings that are notes unless a gate names them: real datasets always have such images, and files that
#: another version wrote cannot be computed again.
NOTES = QUALITY | {FindingCode.NOT_COMPARED}
