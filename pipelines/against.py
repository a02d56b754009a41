"""`validate --against`: turns the command's options into a checked comparison with the source."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardwright.core import storage
from shardwright.core.dataset_files import left_behind, read_dataset
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.rules import Rules, make_rules
from shardwright.core.sources.source import check_settings
from shardwright.core.sources.spool import Spool
from shardwright.pipelines import log
from shardwright.pipelines.options import add_setting
from shardwright.pipelines.places import Target
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.configuration.settings_values import setting_fields, settings_from
from shardwright.schemas.dataset import RUN_JSON, WORK_DIR
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable

if TYPE_CHECKING:
    from shardwright.core.validation.against import Comparison

#: Settings of `convert` that decide how a source is listed and that may be given (again) with `--against`.
LISTING = (
    "source", "image_root", "mask_dir", "keep_labels", "include", "exclude", "rename_labels", "folders",
)  # fmt: skip
#: Those that `dataset.json` does not store, because they name places. `run.json` has them.
UNSTORED = ("image_root", "mask_dir", "keep_labels", "include", "exclude")
#: Key of `run.json`: the first class number, if the source numbers the names of `--class_names`.
_FIRST_NUMBER = "class_names_from"
#: Key of `run.json` that is set if nothing outside of the input was read.
_CONFINE = "confine"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--against`, and the settings that it may need."""
    group = parser.add_argument_group("comparison with the source")
    group.add_argument(
        "--against", action="append", default=[], metavar="PATH",
        help="the source of the dataset, as for convert --input: prove record by record that no image is "
        "lost, duplicated, mislabeled or changed; repeatable",
    )  # fmt: skip
    for name in LISTING:
        add_setting(group, setting_fields()[name], "for --against, as for convert: ")


@contextlib.contextmanager
def prepared(
    target: Target, against: Sequence[str], listing: Mapping[str, Any], mode: str, scratch: str
) -> Iterator[Comparison | None]:
    """Prepares a comparison: checks it before the source is listed, and cleans up afterwards.

    Args:
      target: The dataset.
      against: The source, as `convert --input` takes it; empty for no comparison.
      listing: Settings of `LISTING` that were given.
      mode: Mode of the validation; `fast` converts no image.
      scratch: Local directory for unpacked files, if the dataset is local too.

    Raises:
      UsageError: If the source cannot be listed as it was for the dataset.
    """
    if not against:
        if listing:
            raise UsageError(
                f"--{next(iter(listing))} says how the source is listed; name the source with --against, "
                "or leave it out."
            )
        yield None
        return
    from shardwright.core.validation.against import Comparison  # only a comparison needs it

    if target.directory is None:
        raise UsageError(
            f"--against needs a dataset.json that says how the dataset was made, and --dataset "
            f"{printable(target.name)} has none; leave --against out, or name a dataset directory."
        )
    dataset = read_dataset(target.directory)
    listed_by, processor = _read_run(target.directory)
    for name in UNSTORED:
        if name not in listing and listed_by.get(name):
            what = "which" if name in ("include", "exclude") else "a path that"
            raise UsageError(
                f"The dataset was made with --{name} {listed_by[name]}, {what} it does not store; "
                f"give --{name} together with --against."
            )
    number = listed_by.get(_FIRST_NUMBER)
    with _in_words_of_validate():
        values = {**listing, "input": tuple(against)}
        if listed_by.get(_CONFINE) == "true":
            values[_CONFINE] = True
        settings = settings_from(values, dataset.plan.settings)
        check_settings(settings)
        numbered = (dataset.plan.labels, number) if type(number) is int else ((), 0)
        rules = make_rules(settings, *numbered)
        inputs = check_inputs(settings, None)
    # Remote workers can reach the dataset's storage, but not this machine's disk.
    place = os.path.join(scratch, "against")
    if storage.is_remote(target.directory):
        place = storage.join(target.directory, WORK_DIR, f"against-{uuid.uuid4().hex}")
    storage.make_dirs(place)
    try:
        with _in_words_of_validate():
            yield Comparison(
                directory=target.directory,
                dataset=dataset,
                settings=settings,
                inputs=inputs,
                rules=rules,
                spool=Spool(place),
                convert=mode != "fast",
                same_machine=processor in (None, platform.machine()),
            )
    finally:
        if storage.is_remote(place):
            for warning in left_behind(place, lambda: storage.remove_tree(place)):
                log.warning(warning)


@contextlib.contextmanager
def _in_words_of_validate() -> Iterator[None]:
    """Makes the errors of code that `convert` also uses name the options of `validate`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(error.message.replace("--input", "--against")) from error
    except EngineError as error:
        raise EngineError(error.message.replace(" with --resume", "")) from error


def _read_run(directory: str) -> tuple[Mapping[str, Any], str | None]:
    """Returns how the source was listed, and on what processor; `run.json` may be missing or damaged."""
    try:
        run = json.loads(storage.read_bytes(storage.join(directory, RUN_JSON)))
        return dict(run.get("listing", {})), run.get("machine", {}).get("processor")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}, None


def unstored_settings(settings: ConvertSettings, rules: Rules) -> dict[str, str | int]:
    """Returns the settings by which a source was listed and that `dataset.json` does not store."""
    given = {name: printable(getattr(settings, name)) for name in UNSTORED}
    more: dict[str, str | int] = {_FIRST_NUMBER: rules.first_number} if rules.names else {}
    if settings.confine:
        more[_CONFINE] = "true"
    return {name: value for name, value in given.items() if value} | more
