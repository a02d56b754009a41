"""Renames and filters the class names that sources report, and finds images without a class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardwright.core import storage
from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, as_in_keys, is_image
from shardwright.schemas.labels import lines_of, numbered_names
from shardwright.schemas.layouts import Needs


@dataclass(frozen=True)
class LabelRules:
    """Rules for renaming and filtering the class names that sources report.

    Attributes:
      rename: Mapping of old name to new name.
      keep: Names to keep, compared after renaming, as a person wrote them. None keeps all names.
      class_needed: Whether an image without a class is quarantined.
      class_stored: Whether records store classes or objects; if not, references lose theirs.
      names: Names from `--class_names` in id order. Empty if numbers in the source are not class ids.
      first_number: Number of the first class in `names`.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    keep: frozenset[str] | None = None
    class_needed: bool = True
    class_stored: bool = True
    names: tuple[str, ...] = ()
    first_number: int = 0

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

    @cached_property
    def _keeps_labels(self) -> bool:
        """Whether a reference with a class name stays as it is."""
        return not (self.names or self.changes_names)

    def _names(self, names: Iterable[str]) -> list[str]:
        """Returns the renamed names that are kept, without duplicates."""
        renamed = dict.fromkeys(self.rename.get(name, name) for name in names)
        return [name for name in renamed if self.keep is None or name in self._kept]

    def _named(self, ref: ImageRef) -> ImageRef:
        """Returns a reference with numbers replaced by the class names that they stand for.

        Numbers of objects are not replaced: some formats count them from 0 and some from 1.
        """
        if self.numbers.keys().isdisjoint(ref.labels) or _has_objects(ref):
            return ref
        # A number that --rename_labels renames is treated as a name.
        names = (name if name in self.rename else self.numbers.get(name, name) for name in ref.labels)
        return ref._replace(label=LABEL_SEPARATOR.join(dict.fromkeys(names)))

    def old_names(self, ref: ImageRef) -> Sequence[str]:
        """Returns the class names of a reference as they are before they are renamed."""
        return self._named(ref).labels if self.class_stored else ()

    def apply(self, ref: ImageRef) -> ImageRef:
        """Returns a reference with its new class names; it is filtered if no name is left."""
        if not self.class_stored:
            return ref._replace(label="", annotations="") if ref.label or ref.annotations else ref
        if self._keeps_labels and ref.label:
            return ref
        if not is_image(ref):
            return ref
        if self.names:
            ref = self._named(ref)
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
            for name in self._name_of(item.label)
        ]
        # The mask still shows the segments of other classes, so they stay in the list.
        segments = [
            replace(item, label=name, void=not name and bool(item.label))
            for item in annotations.segments
            for name in self._name_of(item.label) or [""]
        ]
        objects_of_ref = None if annotations.objects is None else tuple(objects)
        return ref.annotated(replace(annotations, objects=objects_of_ref, segments=tuple(segments)))

    def _name_of(self, name: str) -> list[str]:
        """Returns the new name of an object in a list, which is empty if the name is not kept."""
        return self._names([name]) if name else [name]

    def keeps_none(self, found: Collection[str]) -> list[str]:
        """Returns the names to keep that no class of the input has, sorted."""
        return sorted(name for name in self.keep or () if name not in found and as_in_keys(name) not in found)

    def apply_to_ids(self, ids: Mapping[str, int]) -> dict[str, int]:
        """Returns the ids of the new names, renumbered in order if there are fewer names than before."""
        names = self._names(sorted(ids, key=lambda name: ids[name]))
        if len(names) == len(ids):
            return dict(zip(names, sorted(ids.values()), strict=True))
        return {name: min(ids.values()) + place for place, name in enumerate(names)}

    def apply_to_texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Returns the descriptions of classes by their new names."""
        return {new: text for name, text in texts.items() for new in self._names([name])}


def _has_objects(ref: ImageRef) -> bool:
    """Returns whether the classes of a reference come from its objects."""
    if not ref.annotations:
        return False
    annotations = decode_annotations(ref.annotations)
    return annotations.objects is not None or bool(annotations.segments)


def make_label_rules(
    settings: ConvertSettings, names: Sequence[str] = (), first_number: int = 0
) -> LabelRules:
    """Returns the rules that the settings define for class names.

    Args:
      settings: Checked settings.
      names: Names from `--class_names`, in id order.
      first_number: Number of the first name.

    Raises:
      UsageError: If a file cannot be read or an entry is wrong.
    """
    keep = None
    if settings.keep_labels:
        keep = frozenset(
            lines_of(storage.read_text("--keep_labels", settings.keep_labels, "a class name on each line"))
        )
        if not keep:
            raise UsageError(f"--keep_labels {settings.keep_labels}: the file has no class names.")
    needs = settings.record_layout.needs
    if needs is Needs.IMAGE:
        return LabelRules(class_needed=False, class_stored=False)
    return LabelRules(
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
