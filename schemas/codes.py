"""The closed sets of codes that appear in files, on the screen and in exit statuses."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """What a command's exit status says."""

    DONE = 0
    REFUSED = 1  # the data did not pass: findings, too many bad images, a gate
    USAGE = 2  # the command, its settings or its input are wrong; nothing was written
    ENGINE = 3  # the engine, the storage or the machine failed
    INTERRUPTED = 130


class Outcome(StrEnum):
    """What became of one listed file."""

    WRITTEN = "written"
    QUARANTINED = "quarantined"
    FILTERED = "filtered"
    DEDUPLICATED = "deduplicated"


class FilterReason(StrEnum):
    """Why a listed file is no candidate for the dataset."""

    DOTFILE = "dotfile"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_KIND = "unsupported_kind"
    SPECIAL_FILE = "special_file"
    SYMLINK_LOOP = "symlink_loop"
    LIMIT = "limit"
    NESTED_ARCHIVE = "nested_archive"
    LABEL_NOT_KEPT = "label_not_kept"
    NOT_LISTED = "not_listed"  # in none of the source's own lists of images


class Stage(StrEnum):
    """The step at which an image was left out."""

    LIST = "list"
    READ = "read"
    DECODE = "decode"
    TRANSFORM = "transform"
    ENCODE = "encode"
    BUILD = "build"


class QuarantineReason(StrEnum):
    """Why an image was left out for a fault of its own."""

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
    UNSAFE_MEMBER = "UNSAFE_MEMBER"
    DECODE_TIMEOUT = "DECODE_TIMEOUT"


class Severity(StrEnum):
    """Whether a finding fails a validation or only asks to be looked at."""

    ERROR = "error"
    WARNING = "warning"


class FindingCode(StrEnum):
    """What a validation can find."""

    SHARD_TRUNCATED = "SHARD_TRUNCATED"
    LENGTH_CRC = "LENGTH_CRC"
    DATA_CRC = "DATA_CRC"
    UNPARSEABLE = "UNPARSEABLE"
    MISSING_FEATURE = "MISSING_FEATURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    UNDECODABLE = "UNDECODABLE"
    SIZE_MISMATCH = "SIZE_MISMATCH"
    FORMAT_MISMATCH = "FORMAT_MISMATCH"
    LABEL_RANGE = "LABEL_RANGE"
    LABEL_TEXT = "LABEL_TEXT"
    BOX_RANGE = "BOX_RANGE"
    BOX_ORDER = "BOX_ORDER"
    LENGTH_MISMATCH = "LENGTH_MISMATCH"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    SPLIT_LEAKAGE = "SPLIT_LEAKAGE"
    SHARD_MISSING = "SHARD_MISSING"
    SHARD_UNEXPECTED = "SHARD_UNEXPECTED"
    SHARD_CHECKSUM = "SHARD_CHECKSUM"
    COUNT_MISMATCH = "COUNT_MISMATCH"
    INDEX_MISMATCH = "INDEX_MISMATCH"
    SIDECAR_MISMATCH = "SIDECAR_MISMATCH"
    EMPTY_SPLIT = "EMPTY_SPLIT"


#: Findings that are warnings unless a gate names them.
WARNINGS = frozenset({FindingCode.SPLIT_LEAKAGE, FindingCode.EMPTY_SPLIT})
