"""Reads the findings of a validation for the page, selects some with images, and says what each means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.core.report.data import Checked, CodeGroup, RecordAt, ShownFinding, Thumbnail
from shardwright.core.report.samples import Seen
from shardwright.schemas.codes import NOTES, QUALITY, FindingCode, Severity
from shardwright.schemas.findings import CheckRun

#: Codes whose two records are shown side by side, and the number of pairs of each.
PAIRS = frozenset({
    FindingCode.SPLIT_LEAKAGE, FindingCode.LABEL_CONFLICT, FindingCode.EXACT_DUPLICATE,
    FindingCode.NEAR_DUPLICATE, FindingCode.DUPLICATE_KEY,
})  # fmt: skip
_PAIRS_OF_CODE = 12
#: Codes about a single picture that are easier to see than to read, and the number of pictures of each.
_VISIBLE = QUALITY - PAIRS | {
    FindingCode.LABEL_RANGE, FindingCode.LABEL_TEXT, FindingCode.BOX_RANGE, FindingCode.BOX_ORDER,
    FindingCode.KEYPOINT_RANGE, FindingCode.OBJECTS_DROPPED,
    FindingCode.MASK_MISMATCH, FindingCode.SIZE_MISMATCH, FindingCode.FORMAT_MISMATCH,
    FindingCode.SOURCE_LABEL, FindingCode.SOURCE_CHANGED, FindingCode.SOURCE_MISSING, FindingCode.KEPT_BYTES,
}  # fmt: skip
_IMAGES_OF_CODE = 10
_ORDER = {Severity.ERROR.value: 0, Severity.WARNING.value: 1, Severity.NOTE.value: 2}


def read_validation(
    document: Mapping[str, Any] | None,
    fingerprint: str,
    paths: Mapping[str, str],
    when: str,
    left_out: list[str],
) -> Checked | None:
    """Reads a `findings.json`, without images. Codes of later versions are shown like any other.

    Args:
      document: Contents of the file. None if there is none.
      fingerprint: Fingerprint of the present dataset. Empty for foreign files.
      paths: Mapping of shard to its path.
      when: When the file was written.
      left_out: List that gets a sentence if the file is not understood.
    """
    if document is None:
        return None
    try:
        return Checked(
            mode=str(document["depth"]),
            sound=None if document["sound"] is None else bool(document["sound"]),
            errors=int(document["errors"]),
            warnings=int(document["warnings"]),
            notes=int(document.get("notes", 0)),
            groups=tuple(_groups(document, paths)),
            records=int(document["records"]),
            current=document.get("fingerprint") in (fingerprint or None, None),
            when=when,
            previous=tuple(map(CheckRun.from_json, document.get("checks", ())[1:])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        left_out.append("findings.json is damaged or has another version; validate again to replace it.")
        return None


def _groups(document: Mapping[str, Any], paths: Mapping[str, str]) -> list[CodeGroup]:
    findings: defaultdict[str, list[ShownFinding]] = defaultdict(list)
    for value in document["findings"]:
        finding = _finding(value, paths)
        findings[finding.code].append(finding)
    counts = {str(code): int(count) for code, count in document["counts"].items()}
    groups = [
        _group(code, counts.get(code, len(findings[code])), findings[code])
        for code in counts.keys() | findings.keys()
    ]
    return sorted(groups, key=lambda group: (_ORDER.get(group.severity, len(_ORDER)), group.code))


def _group(code: str, number: int, findings: Sequence[ShownFinding]) -> CodeGroup:
    pairs = [finding for finding in findings if finding.other_shard] if code in PAIRS else []
    images = [finding for finding in findings if finding.at] if code in _VISIBLE else []
    # A code may have a count without findings.
    severity = (
        findings[-1].severity if findings else (Severity.NOTE if code in NOTES else Severity.ERROR).value
    )
    return CodeGroup(
        code,
        severity,
        number,
        tuple(findings),
        tuple(pairs[:_PAIRS_OF_CODE]),
        tuple(images[:_IMAGES_OF_CODE]),
    )


def _finding(value: Mapping[str, Any], paths: Mapping[str, str]) -> ShownFinding:
    other = value.get("other") or {}
    return ShownFinding(
        code=str(value["code"]),
        severity=str(value.get("severity", Severity.ERROR.value)),
        message=str(value["message"]),
        shard=str(value.get("shard") or ""),
        record=_number(value.get("record")),
        offset=_number(value.get("offset")),
        key=str(value.get("key") or ""),
        at=_place(value, paths),
        other_shard=str(other.get("shard") or ""),
        other_key=str(other.get("key") or ""),
        other_at=_place(other, paths),
    )


def _place(where: Mapping[str, Any], paths: Mapping[str, str]) -> RecordAt | None:
    path, offset = paths.get(str(where.get("shard"))), _number(where.get("offset"))
    return None if path is None or offset is None else RecordAt(path, offset)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def record_places(checked: Checked) -> list[RecordAt]:
    """Returns the places of the records whose images are needed."""
    findings = [finding for group in checked.groups for finding in (*group.pairs, *group.images)]
    return [at for finding in findings for at in (finding.at, finding.other_at) if at]


def with_thumbnails(checked: Checked, seen: Mapping[RecordAt, Seen]) -> Checked:
    """Returns the results with the images that could be read."""

    def picture(at: RecordAt | None) -> Thumbnail | None:
        return seen[at][0] if at is not None and at in seen else None

    def drawn(findings: Sequence[ShownFinding]) -> tuple[ShownFinding, ...]:
        return tuple(
            finding._replace(picture=picture(finding.at), other_picture=picture(finding.other_at))
            for finding in findings
        )

    groups = [
        group._replace(
            pairs=drawn(group.pairs), images=tuple(one for one in drawn(group.images) if one.picture)
        )
        for group in checked.groups
    ]
    return replace(checked, groups=tuple(groups))


#: Mapping of code to its meaning, half a sentence. The page shows an unknown code without a meaning.
MEANINGS: Mapping[str, str] = {
    "SHARD_TRUNCATED": "a shard ends in the middle of a record",
    "LENGTH_CRC": "the checksum of a record's length is wrong",
    "DATA_CRC": "the checksum of a record's bytes is wrong",
    "UNPARSEABLE": "a record is not a tf.train.Example",
    "MISSING_FEATURE": "a record lacks a feature that all should have",
    "WRONG_TYPE": "a feature does not have the expected type",
    "WRONG_SHAPE": "a feature has too many or too few values",
    "NOT_UTF8": "a text is not UTF-8",
    "NOT_FINITE": "a number is infinite or NaN",
    "WRONG_VALUE": "a value differs from the one in its layout or record",
    "UNDECODABLE": "an image cannot be decoded",
    "SIZE_MISMATCH": "an image's size differs from its record",
    "FORMAT_MISMATCH": "an image's format differs from its record",
    "LABEL_RANGE": "a class id is outside the list of classes",
    "LABEL_TEXT": "a class name does not belong to the class id",
    "BOX_RANGE": "a box reaches beyond its image",
    "BOX_ORDER": "a box ends before it begins",
    "KEYPOINT_RANGE": "a key point lies outside its image, or has an unknown visibility",
    "MASK_MISMATCH": "a mask does not fit its image or its classes",
    "OBJECTS_DROPPED": "a record does not have all objects of its source",
    "PRIVATE_METADATA": "an image file states a position, a serial number of a camera, or a name",
    "LENGTH_MISMATCH": "lists that go together differ in length",
    "DUPLICATE_KEY": "two records have the same key",
    "SPLIT_LEAKAGE": "the same or nearly the same image is in two splits",
    "SHARD_MISSING": "a shard that dataset.json lists is missing",
    "SHARD_UNEXPECTED": "a shard is not listed in dataset.json",
    "SHARD_CHECKSUM": "a shard was changed after it was written",
    "COUNT_MISMATCH": "counts do not add up",
    "INDEX_MISMATCH": "an index does not fit its shard",
    "LEDGER_MISMATCH": "a shard's ledger does not fit its shard",
    "SIDECAR_MISMATCH": "a file for other tools was changed after it was written",
    "SHARD_REPAIRED": "the shard was damaged in the previous version and was rebuilt from the source",
    "DATASET_MISMATCH": "a field of dataset.json disagrees with the rest of the dataset",
    "QUARANTINE_MISMATCH": "quarantine.jsonl differs from the ledgers",
    "REPORT_MISMATCH": "a file about the dataset was changed after it was written",
    "RECORD_ORDER": "a record is not where the plan places it",
    "NOT_COMPARED": "another version wrote it, so it could not be compared",
    "EMPTY_SPLIT": "a split has no records",
    "SOURCE_MISSING": "the source has no image for a record",
    "RECORD_MISSING": "the dataset has no record for an image of the source",
    "SOURCE_CHANGED": "the source changed since the record was made",
    "SOURCE_LABEL": "the source says another class",
    "KEPT_BYTES": "bytes that should be the source's own are not",
    "LABEL_CONFLICT": "equal or similar images have different classes",
    "EXACT_DUPLICATE": "two images are the same",
    "NEAR_DUPLICATE": "two images look nearly the same",
    "DARK": "an image is very dark",
    "LIGHT": "an image is very light",
    "BLURRY": "an image is blurred",
    "LOW_INFORMATION": "an image shows almost nothing",
    "ODD_SIZE": "an image is far larger or smaller than most",
    "ODD_ASPECT_RATIO": "an image is very long and narrow",
    "GRAYSCALE": "an image has no colors",
    "CLASS_IMBALANCE": "classes are of very different sizes",
    "TINY_CLASS": "a class has very few records",
    "EXPECTATION": "one of your expectations is not met",
    "EMPTY_FILE": "the file has no bytes",
    "NOT_AN_IMAGE": "the bytes are not an image",
    "UNSUPPORTED_FORMAT": "a format that is not read",
    "TRUNCATED": "the file ends too early",
    "CORRUPT": "the file is damaged",
    "TOO_MANY_PIXELS": "more pixels than --max_pixels allows",
    "TOO_LARGE": "more bytes than --max_bytes allows",
    "UNREADABLE": "the file could not be opened",
    "CHECKSUM_MISMATCH": "not the bytes that the source promises",
    "BAD_ANNOTATION": "its boxes or masks cannot be understood",
    "UNKNOWN_LABEL": "its class is not in the given list",
    "BAD_ROW": "its row in the manifest cannot be understood",
    "WRONG_CHANNELS": "it has another number of channels than --channels",
    "WRONG_DTYPE": "the layout's dtype cannot hold its samples",
    "UNSAFE_MEMBER": "a member of an archive that leads out of it",
    "MAP_FAILED": "the function of --map failed on it",
    "DAMAGED_RECORD": "its record could not be saved from a damaged shard",
    "TOO_MANY_SCANS": "a JPEG with more scans than any encoder writes",
    "TOO_MANY_SEGMENTS": "a JPEG with more segments than any program writes",
    "TOO_MANY_EXIF_SEGMENTS": "a JPEG with more Exif segments than any program writes",
    "TOO_MANY_STRAY_BYTES": "a JPEG, GIF or BMP with many unused bytes",
    "TOO_MANY_CHUNKS": "a PNG or WebP with more chunks than any program writes",
    "TOO_MANY_BLOCKS": "a GIF with more blocks of pixels than any program writes",
    "TOO_MANY_COMMENT_BLOCKS": "a GIF with more blocks of comments than any program writes",
    "TOO_MANY_EXTENSION_BLOCKS": "a GIF with more blocks of extensions than any program writes",
    "TOO_MANY_TAGS": "Exif data or a TIFF with more tags than any program writes",
    "TOO_MANY_TAG_VALUES": "Exif data or a TIFF with more tag values than any program writes",
    "TOO_MANY_STRIPS": "a TIFF with more strips or tiles than any program writes",
    "TOO_MANY_SHARED_BYTES": "a TIFF whose tags or strips share their bytes too often",
    "TOO_MANY_RUNS": "a run-length encoded BMP with too many pixels or bytes",
    "TOO_MANY_COLUMNS": "a run-length encoded BMP with too many columns",
    "TOO_MANY_COMMENTS": "a PNM with a longer header than any program writes",
    "TOO_MANY_BOXES": "a HEIF, JPEG 2000 or JPEG XL with more boxes than any program writes",
    "TOO_MANY_TILES": "a HEIF or JPEG 2000 with more tiles than any program writes",
    "TOO_MANY_CODE_BLOCKS": "a JPEG 2000 with more code blocks than any program writes",
    "TOO_MANY_PACKETS": "a JPEG 2000 with more packets than any program writes",
    "TOO_MUCH_MEMORY": "decoding takes far more memory than the pixels that --max_pixels allows",
    "DECODER_CRASHED": "the decoder crashed on it",
    "DECODE_TIMEOUT": "decoding took too long",
    "dotfile": "a hidden file",
    "not_an_image": "not an image, and not named like one",
    "unsupported_kind": "a kind of file that is not read",
    "special_file": "not a regular file",
    "symlink_loop": "a link that leads to itself",
    "limit": "beyond --limit",
    "nested_archive": "an archive inside an archive",
    "label_not_kept": "of a class that was not requested",
    "not_listed": "not in the source's own lists",
    "skipped_format": "of a format that --skip_formats leaves out",
    "outside_splits": "outside the split folders",
    "dropped_by_map": "the function of --map left it out",
    "excluded": "listed or matched by --exclude",
    "not_included": "not listed or matched by --include",
    "min_bytes": "fewer bytes than --min_bytes",
    "min_side": "a side is shorter than --min_side",
    "max_aspect": "longer and narrower than --max_aspect",
    "max_per_class": "beyond --max_per_class",
    "dark": "very dark (--drop DARK)",
    "light": "very light (--drop LIGHT)",
    "blurry": "blurred (--drop BLURRY)",
    "low_information": "shows almost nothing (--drop LOW_INFORMATION)",
    "odd_aspect_ratio": "very long and narrow as stored (--drop ODD_ASPECT_RATIO)",
    "grayscale": "without colors (--drop GRAYSCALE)",
}
