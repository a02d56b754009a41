"""Rules of a listing: which images are taken, and what their classes are called; and those without a match.

Images are left out by their keys and the sizes of their files. Class names are read from file names, renamed
and filtered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardwright.core import storage
from shardwright.core.sources.image_files import file_name, split_name
from shardwright.schemas.annotations import Annotations, decode_annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.kinds import list_entries
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, as_in_keys, is_image, one_label
from shardwright.schemas.key_rules import KeyList, KeyRules, parse_key_list
from shardwright.schemas.labels import lines_of, numbered_names
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted, listed

#: Number of names or entries in a warning.
_MAX_LISTED = 5
#: Number of lines for which a part of an input remembers a key with the same file name.
_MAX_SIMILAR = 1000


def _name_in(line: str) -> str:
    """Returns the file name in a key or in a line that names one, without quotes and in one case."""
    return file_name(line).strip("\"' ").casefold()


def _read_list(option: str, text: str, files: dict[str, str]) -> KeyList:
    """Reads the list of an option; adds the digests of the files that it names to `files`."""
    patterns, paths = list_entries(text)
    lines = []
    for path in paths:
        content = storage.read_text(option, path)
        entries = lines_of(content)
        if option == "--include" and not entries:
            raise UsageError(f"{option} @{path}: the file lists no image; write a key or a sha256 per line.")
        lines += entries
        files[path] = hashlib.sha256(content.encode()).hexdigest()
    return parse_key_list(patterns, lines)


@dataclass(frozen=True)
class Rules:
    """Which listed images are taken, and how the class names that sources report are renamed and filtered.

    Attributes:
      keys: Rules of `--include` and `--exclude`.
      min_bytes: Least size of a file. Files of unknown size are measured when they are read.
      files: The lists that were read: path -> sha256 of the list.
      rename: Mapping of old name to new name.
      keep: Names to keep, compared after renaming, as a person wrote them. None keeps all names.
      class_needed: Whether an image without a class is quarantined.
      class_stored: Whether records store classes or objects; if not, references lose theirs.
      names: Names from `--class_names` in id order. Empty if numbers in the source are not class ids.
      first_number: Number of the first class in `names`.
    """

    keys: KeyRules = field(default_factory=KeyRules)
    min_bytes: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    keep: frozenset[str] | None = None
    class_needed: bool = True
    class_stored: bool = True
    names: tuple[str, ...] = ()
    first_number: int = 0

    @cached_property
    def lists(self) -> Mapping[str, KeyList]:
        """Option -> its list, for the options that are given."""
        lists = {"--include": self.keys.include, "--exclude": self.keys.exclude}
        return {option: keys for option, keys in lists.items() if keys}

    @cached_property
    def lines_of_files(self) -> Mapping[str, str]:
        """File name in one case -> a line that names such a file."""
        lines = (line for keys in self.lists.values() for line in keys.keys)
        return {_name_in(line): line for line in sorted(lines, reverse=True)}

    @cached_property
    def numbers(self) -> Mapping[str, str]:
        """Mapping of number, as text, to class name."""
        return numbered_names(self.names, self.first_number)

    @cached_property
    def changes_names(self) -> bool:
        """Whether names are renamed or filtered."""
        return bool(self.rename) or self.keep is not None

    @cached_property
    def _kept(self) -> frozenset[str]:
        """The names to keep, also as folders give them: `100%` is `100%25` there."""
        return frozenset(spelling for name in self.keep or () for spelling in (name, as_in_keys(name)))

    def _names(self, names: Iterable[str]) -> list[str]:
        """Returns the renamed names that are kept, without duplicates. An empty name is none and stays."""
        renamed = dict.fromkeys(self.rename.get(name, name) for name in names)
        return [name for name in renamed if not name or self.keep is None or name in self._kept]

    def _with_names(self, ref: ImageRef) -> ImageRef:
        """Returns a reference with numbers replaced by the class names that they stand for.

        Numbers of objects are not replaced: some formats count them from 0 and some from 1.
        """
        if self.numbers.keys().isdisjoint(ref.labels):
            return ref
        annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
        if annotations.objects is not None or annotations.segments:
            return ref
        # A number that --rename_labels renames is treated as a name.
        names = (name if name in self.rename else self.numbers.get(name, name) for name in ref.labels)
        return ref._replace(label=LABEL_SEPARATOR.join(dict.fromkeys(names)))

    def old_names(self, ref: ImageRef) -> Sequence[str]:
        """Returns the class names of a reference as they are before they are renamed."""
        return self._with_names(ref).labels if self.class_stored else ()

    def apply(self, ref: ImageRef) -> ImageRef:
        """Returns a reference with its new class names, filtered if it is left out or no name is left."""
        if (self.lists or self.min_bytes) and is_image(ref):
            reason = self.keys.reason_by_key(ref.key)
            if reason is None and ref.is_candidate and 0 < ref.size < self.min_bytes:
                reason = FilterReason.MIN_BYTES
            ref = ref if reason is None else ref.filtered(reason)
        if not self.class_stored:
            return ref._replace(label="", annotations="") if ref.label or ref.annotations else ref
        if not is_image(ref):
            return ref
        ref = self._with_names(ref)
        if self.changes_names and ref.label:
            names = self._names(ref.labels)
            if not names:
                return ref.filtered(FilterReason.LABEL_NOT_KEPT)
            ref = self._with_new_names(ref)._replace(label=LABEL_SEPARATOR.join(names))
        if self.class_needed and ref.is_candidate and not ref.label:
            return ref.quarantined(QuarantineReason.UNKNOWN_LABEL, ref.message or "it has no class")
        return ref

    def _with_new_names(self, ref: ImageRef) -> ImageRef:
        if not ref.annotations:
            return ref
        annotations = decode_annotations(ref.annotations)
        objects = [
            replace(item, label=name)
            for item in annotations.objects or ()
            for name in self._names([item.label])
        ]
        # The mask still shows the segments of other classes, so they stay in the list.
        segments = [
            replace(item, label=name, void=not name and bool(item.label))
            for item in annotations.segments
            for name in self._names([item.label]) or [""]
        ]
        objects_of_ref = None if annotations.objects is None else tuple(objects)
        return ref.annotated(replace(annotations, objects=objects_of_ref, segments=tuple(segments)))

    def apply_to_ids(self, ids: Mapping[str, int]) -> dict[str, int]:
        """Returns the ids of the new names, renumbered in order if there are fewer names than before."""
        names = self._names(sorted(ids, key=lambda name: ids[name]))
        if len(names) == len(ids):
            return dict(zip(names, sorted(ids.values()), strict=True))
        return {name: min(ids.values()) + place for place, name in enumerate(names)}

    def apply_to_texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Returns the descriptions of classes by their new names."""
        return {new: text for name, text in texts.items() for new in self._names([name])}


def make_rules(settings: ConvertSettings, names: Sequence[str] = (), first_number: int = 0) -> Rules:
    """Returns the rules that the settings define.

    Args:
      settings: Checked settings.
      names: Names from `--class_names`, in id order.
      first_number: Number of the first name.

    Raises:
      UsageError: If a file cannot be read or is empty, or an entry is wrong.
    """
    keep = None
    if settings.keep_labels:
        text = storage.read_text("--keep_labels", settings.keep_labels, "a class name on each line")
        keep = frozenset(lines_of(text))
        if not keep:
            raise UsageError(f"--keep_labels {settings.keep_labels}: the file has no class names.")
    files: dict[str, str] = {}
    include = _read_list("--include", settings.include, files)
    exclude = _read_list("--exclude", settings.exclude, files)
    rules = Rules(KeyRules(include, exclude), settings.min_source_bytes, files)
    needs = settings.record_layout.needs
    if needs is Needs.IMAGE:
        return replace(rules, class_needed=False, class_stored=False)
    return replace(
        rules,
        rename=_parse_renames(settings.rename_labels),
        keep=keep,
        class_needed=needs is Needs.LABEL and settings.unlabelled == "quarantine",
        names=tuple(names) if numbered_names(names, first_number) else (),
        first_number=first_number,
    )


def _parse_renames(text: str) -> dict[str, str]:
    if not text:
        return {}
    inline = "=" in text and not storage.is_remote(text)
    renames: dict[str, str] = {}
    content = "OLD=NEW on each line, or write OLD=NEW"
    entries = text.split(",") if inline else lines_of(storage.read_text("--rename_labels", text, content))
    for entry in entries:
        old, equals, new = (piece.strip() for piece in entry.partition("="))
        if not equals or not old or not new:
            raise UsageError(f"--rename_labels: {entry.strip()!r} is not an entry; write OLD=NEW.")
        if renames.setdefault(old, new) != new:
            raise UsageError(f"--rename_labels: {old!r} has two new names; remove one.")
    return {**{as_in_keys(old): new for old, new in renames.items()}, **renames}


def take_apart(ref: ImageRef, pattern: re.Pattern[str], prefix: str, archive: str = "") -> ImageRef:
    """Returns a reference with the class, split and group in its file name, or the reason why there are none.

    Args:
      ref: Reference to a file; its folders are not used for class and split.
      pattern: Expression with a group `label`, and optionally `split` and `group`. It must match the whole
        file name, or the whole path below the input or inside the archive.
      prefix: Prefix of all keys of the input.
      archive: Path below the input of the archive that contains it; empty if it is a file.
    """
    if not ref.is_candidate:
        return ref._replace(label="", split="")
    path = ref.key.removeprefix(prefix)
    names = [path.rpartition("/")[2], path]
    if archive:
        inside = path.removeprefix(f"{archive}!")
        names += [inside.rpartition("/")[2], inside]
    match = next(filter(None, map(pattern.fullmatch, names)), None)
    named = match.groupdict(default="") if match else {}
    if not named.get("label"):
        return ref._replace(label="", split="", message="its name does not match --label_regex")
    try:
        split = split_name(named.get("split", ""))
    except ValueError as error:
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(error))
    return ref._replace(label=one_label(named["label"]), split=split, group=named.get("group", ""))


@dataclass
class RuleMatches:
    """What the names and lists of the settings match in a part of an input. Parts can be merged in any order.

    Attributes:
      names: Class names of images, before they are renamed.
      entries: Options, each with a pattern or line of it that matches an image.
      similar: Line without a match -> key with the same file name.
      example: The first key in order; empty without an image.
    """

    names: set[str] = field(default_factory=set)
    entries: set[tuple[str, str]] = field(default_factory=set)
    similar: dict[str, str] = field(default_factory=dict)
    example: str = ""

    def add(self, ref: ImageRef, rules: Rules) -> None:
        """Adds a reference that a source has listed, before any rule is applied."""
        if not is_image(ref):
            return
        if rules.changes_names:
            self.names.update(rules.old_names(ref))
        if not rules.lists:
            return
        lists = rules.lists.items()
        entries = {(option, entry) for option, keys in lists for entry in keys.entries_of(ref.key)}
        line = None if entries else rules.lines_of_files.get(_name_in(ref.key))
        similar = {line: ref.key} if line is not None and len(self.similar) < _MAX_SIMILAR else {}
        self.merge(RuleMatches(entries=entries, similar=similar, example=ref.key))

    def merge(self, other: RuleMatches) -> None:
        """Adds what matched in another part."""
        self.names |= other.names
        self.entries |= other.entries
        for line, key in other.similar.items():
            self.similar[line] = min(key, self.similar.get(line, key))
        self.example = min(filter(None, (self.example, other.example)), default="")


def unmatched_warnings(parts: Iterable[RuleMatches], settings: ConvertSettings, rules: Rules) -> list[str]:
    """Returns a sentence for each setting with names, patterns or lines that match no image.

    Args:
      parts: What matched in each part of the inputs.
      settings: Checked settings.
      rules: The rules.
    """
    matches = RuleMatches()
    for part in parts:
        matches.merge(part)
    sentences = list(_unmatched_names(matches.names, settings, rules))
    for option, keys in rules.lists.items():
        text = settings.include if option == "--include" else settings.exclude
        sentences += _unmatched_entries(option, text, keys, matches)
    return sentences


def _unmatched_names(names: set[str], settings: ConvertSettings, rules: Rules) -> Iterator[str]:
    new_names = {rules.rename.get(name, name) for name in names}
    names_in_keys = {as_in_keys(name) for name in names}
    old_names = sorted({as_in_keys(name) for name in rules.rename} - names_in_keys)
    kept_names = sorted(name for name in rules.keep or () if new_names.isdisjoint((name, as_in_keys(name))))
    for unused, candidates, option, where in (
        (old_names, names, "--rename_labels", settings.rename_labels),
        (kept_names, new_names, "--keep_labels", settings.keep_labels),
    ):
        if unused:
            hint = nearest(unused[0], sorted(candidates)) or "; check the spelling."
            classes = listed(map(repr, unused), _MAX_LISTED, "or")
            yield f"No image has the class {classes} of {option} {where}{hint}"


def _unmatched_entries(option: str, text: str, keys: KeyList, matches: RuleMatches) -> Iterator[str]:
    patterns = [pattern for pattern in keys.patterns if (option, pattern) not in matches.entries]
    key = f", such as {matches.example!r}" if matches.example else ""
    if patterns:
        which = option if len(keys.patterns) == 1 else f"{option} {text}:"
        match = "matches" if len(patterns) == 1 else "match"
        quoted = listed(map(repr, patterns), _MAX_LISTED)
        yield f"{which} {quoted} {match} no key; a key is the path below the input{key}."
    lines = sorted(line for line in keys.keys if (option, line) not in matches.entries)
    if lines:
        first = next((line for line in lines if line in matches.similar), lines[0])
        hint = f"; did you mean {matches.similar[first]}?" if first in matches.similar else "."
        yield (
            f"{option} {text}: {len(lines):,} of {counted(len(keys.keys), 'line')} "
            f"{'matches' if len(lines) == 1 else 'match'} no image: {first!r}{hint} A line is one whole key, "
            f"the path below the input{key}; write patterns and folders beside @FILE, as in "
            f"{option} 'drafts/,@FILE'."
        )
