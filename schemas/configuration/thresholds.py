"""Limits on how far a dataset may differ from the previous one, and the check against them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration.expectations import Code, Growth, Limits, Name, Share
from shardwright.schemas.configuration.typed_yaml import write
from shardwright.schemas.drift import Drift, Kind, Pair
from shardwright.schemas.findings import Violation
from shardwright.schemas.units import beside_limit, counted, is_or_are, percent_beside_limit
from shardwright.schemas.values import quoted_value

_DRIFT = "drift"
_SHOWN = 3


class Policy(StrEnum):
    """What to do about a difference that has no number."""

    ALLOW = "allow"
    WARN = "warn"
    REFUSE = "refuse"


_Policy = Annotated[Policy, write("refuse, warn or allow")]


class Thresholds(Limits):
    """Limits on differences. Only given limits are checked, except that ids of classes must always stay.

    Fractions of images are per record of the old dataset. Limits on records and classes apply to the whole
    dataset and to each split that both datasets have.
    """

    max_count_drop: Share | None = None
    """Share of its records that the dataset, or a split of it, may lose."""
    max_count_jump: Growth | None = None
    """Share by which its records, or those of a split, may grow."""
    max_added_fraction: Growth | None = None
    """Added images, per record of the dataset before."""
    max_removed_fraction: Share | None = None
    """Removed images, per record of the dataset before."""
    max_renamed_fraction: Share | None = None
    """Images with another key, per record of the dataset before."""
    max_changed_fraction: Share | None = None
    """Images with another source, per record of the dataset before."""
    max_re_encoded_fraction: Share | None = None
    """Images stored in another way, per record of the dataset before."""
    max_label_change_fraction: Share | None = None
    """Images with other classes, per record of the dataset before."""
    max_split_move_fraction: Share | None = None
    """Images in another split, per record of the dataset before."""
    max_class_l_infinity: Share | None = None
    """Largest difference between the shares of a class."""
    max_class_jensen_shannon: Share | None = None
    """Jensen-Shannon distance of the distributions over classes."""
    max_bad_fraction: Share | None = None
    """Quarantined / (written + quarantined)."""
    max_rise: Annotated[dict[Code, Growth], write("a limit for each name, such as {DARK: 0.01}")] = Field(
        default_factory=dict
    )
    """Rise of the findings per record: {DARK: 0.01}."""
    max_statistics_change: Annotated[
        dict[Name, Growth], write("a limit for each name, such as {brightness.mean: 0.1}")
    ] = Field(default_factory=dict)
    """Share by which a number of statistics.json may change: {width.mean: 0.2}."""
    new_classes: _Policy = Policy.ALLOW
    """Classes that had no records."""
    vanished_classes: _Policy = Policy.ALLOW
    """Classes that have no records any more."""
    renumbered_classes: _Policy = Policy.REFUSE
    """Classes with another id; refused by default."""
    changed_features: _Policy = Policy.ALLOW
    """Another layout or features."""
    changed_settings: _Policy = Policy.ALLOW
    """Other settings."""
    changed_versions: _Policy = Policy.ALLOW
    """Other software."""

    def as_json(self) -> dict[str, Any]:
        """Returns the limits that are set."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, {})}


#: Limits on changed images -> kind of change, and what a message says about it.
IMAGE_LIMITS = {
    "max_added_fraction": (Kind.ADDED, "are new"),
    "max_removed_fraction": (Kind.REMOVED, "are gone"),
    "max_renamed_fraction": (Kind.RENAMED, "have a different key"),
    "max_changed_fraction": (Kind.CHANGED, "have a different source"),
    "max_re_encoded_fraction": (Kind.RE_ENCODED, "are stored differently"),
    "max_label_change_fraction": (Kind.RELABELLED, "have different classes"),
    "max_split_move_fraction": (Kind.MOVED, "are in a different split"),
}


def check(drift: Drift, thresholds: Thresholds) -> list[Violation]:
    """Returns a violation for each limit that is exceeded, or that cannot be checked."""
    return [
        *_check_records(drift, thresholds),
        *_check_images(drift, thresholds),
        *_check_classes(drift, thresholds),
        # Of identical datasets nothing else was read, and nothing else is needed.
        *([] if drift.identical else _check_quality(drift, thresholds)),
        *([] if drift.identical else _check_statistics(drift, thresholds)),
        *_check_policies(drift, thresholds),
    ]


def _error(name: str, message: str, value: float | None, limit: float) -> Violation:
    return Violation(_DRIFT, name, Severity.ERROR, f"{name}: {message}", value, limit)


def _points(value: float, limit: float) -> tuple[str, str]:
    """Prints a difference of shares and its limit in percentage points."""
    value_text, limit_text = percent_beside_limit(value, limit)
    return value_text.rstrip("%"), limit_text.rstrip("%")


def _check_records(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    sizes = {"the dataset": drift.all_records}
    sizes |= {f"split {split!r}": pair for split, pair in drift.records.items()}
    for what, (old, new) in sizes.items():
        if not old:
            continue
        growth = (new or 0) / old - 1
        for name, verb, change in (("max_count_drop", "fell", -growth), ("max_count_jump", "grew", growth)):
            limit = getattr(thresholds, name)
            if limit is not None and change > limit:
                value, most = percent_beside_limit(change, limit)
                counts = f"{old:,} to {counted(new or 0, 'record')}"
                yield _error(name, f"{what} {verb} {value} ({counts}; limit {most})", change, limit)


def _check_images(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    records = f"{counted(drift.all_records.old, 'record')} of the old dataset"
    for name, (kind, what) in IMAGE_LIMITS.items():
        share, limit = drift.fraction(kind), getattr(thresholds, name)
        if limit is not None and share > limit:
            value, most = percent_beside_limit(share, limit)
            count = drift.changes.total(kind)
            verb = is_or_are(count) if what.startswith("are") else "has" if count == 1 else "have"
            text = f"{counted(count, 'image')} {verb} {what.partition(' ')[2]}"
            yield _error(name, f"{text}, {value} of the {records} (limit {most})", share, limit)
    bad, limit = drift.bad_fraction.new, thresholds.max_bad_fraction
    if limit is not None and bad > limit:
        value, most = percent_beside_limit(bad, limit)
        text = f"{value} of the images of the new dataset are bad (limit {most})"
        yield _error("max_bad_fraction", text, bad, limit)


def _check_classes(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    distances = {"the dataset": drift.classes.overall}
    distances |= {f"split {split!r}": one for split, one in drift.classes.splits.items()}
    for where, one in distances.items():
        limit = thresholds.max_class_l_infinity
        if limit is not None and one.l_infinity > limit:
            value, most = _points(one.l_infinity, limit)
            name = f"class {quoted_value(one.name)}" if one.name else "a class"
            text = f"the share of {name} in {where} changed by {value} percentage points (limit {most})"
            yield _error("max_class_l_infinity", text, one.l_infinity, limit)
        limit = thresholds.max_class_jensen_shannon
        if limit is not None and one.jensen_shannon > limit:
            value, most = beside_limit(one.jensen_shannon, limit)
            text = (
                f"the class distributions of {where} differ by a Jensen-Shannon distance of {value} "
                f"(limit {most})"
            )
            yield _error("max_class_jensen_shannon", text, one.jensen_shannon, limit)


def _check_quality(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    for code, limit in thresholds.max_rise.items():
        rates = drift.quality.get(code, Pair(None, None))
        if None in rates:
            where = " and ".join(name for name, rate in rates._asdict().items() if rate is None)
            advice = f"the {where} dataset was not validated for it; run shardwright validate --quality first"
            yield _unknown("max_rise", code, limit, advice)
        elif rates.new - rates.old > limit:
            rise = rates.new - rates.old
            value, most = _points(rise, limit)
            old, new = (f"{rate * 100:.3g}% of the records" for rate in rates)
            text = f"{code} rose by {value} percentage points ({old} to {new}; limit {most})"
            yield _error("max_rise", text, rise, limit)


def _check_statistics(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    name_of_limit = "max_statistics_change"
    known = {name: pair for name, pair in drift.statistics.items() if None not in pair}
    for ending, limit in thresholds.max_statistics_change.items():
        pairs = {name: pair for name, pair in known.items() if f".{name}".endswith(f".{ending}")}
        if not pairs:
            advice = (
                "no number of this name is in both statistics.json files; run shardwright validate "
                "--quality on both"
            )
            yield _unknown(name_of_limit, ending, limit, advice)
        for name, (old, new) in pairs.items():
            if not old and new:
                text = (
                    f"{quoted_value(name)} was 0 and is {new:.6g}, which cannot be expressed as a share "
                    f"(limit {percent_beside_limit(limit, limit)[1]})"
                )
                yield _error(name_of_limit, text, None, limit)
            change = abs(new - old) / abs(old) if old else 0.0
            if change > limit:
                value, most = percent_beside_limit(change, limit)
                verb = "fell" if new < old else "grew"
                text = f"{quoted_value(name)} {verb} {value} ({old:.6g} to {new:.6g}; limit {most})"
                yield _error(name_of_limit, text, change, limit)


def _unknown(name: str, what: str, limit: float, advice: str) -> Violation:
    return _error(name, f"{quoted_value(what)} cannot be checked, because {advice}", None, limit)


#: Policy -> its message about one name, and about several.
_POLICY_TEXTS = {
    "new_classes": ("new class", "new classes"),
    "vanished_classes": ("class no longer has records", "classes no longer have records"),
    "renumbered_classes": ("class has a different id", "classes have different ids"),
    "changed_features": ("feature differs", "features differ"),
    "changed_settings": ("setting differs", "settings differ"),
    "changed_versions": ("software version differs", "software versions differ"),
}


def _check_policies(drift: Drift, thresholds: Thresholds) -> Iterator[Violation]:
    made = drift.made
    found = {
        "new_classes": drift.classes.new,
        "vanished_classes": drift.classes.vanished,
        "renumbered_classes": tuple(drift.classes.renumbered),
        "changed_features": (*made.get("layout", ()), *made.get("features", ())),
        "changed_settings": tuple(made.get("settings", ())),
        "changed_versions": tuple(made.get("versions", ())),
    }
    for name, names in found.items():
        policy = getattr(thresholds, name)
        if names and policy is not Policy.ALLOW:
            severity = Severity.WARNING if policy is Policy.WARN else Severity.ERROR
            listed = ", ".join(map(quoted_value, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
            amount = counted(len(names), *_POLICY_TEXTS[name])
            message = f"{name}: {amount} ({listed}; the gate says {policy.value})"
            yield Violation(_DRIFT, name, severity, message, len(names), policy.value)
