"""Chooses the columns of a table: those that settings name, or else those with usual names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from shardwright.core.images.signatures import is_image_name
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.plain_text import printable

#: Roles of columns.
ROLES = ("image", "label", "split", "group", "sha256")
#: Columns of Hugging Face's imagefolder for objects and for the image size.
OBJECTS, WIDTH, HEIGHT = "objects", "width", "height"
#: Usual names of the classes of objects.
OBJECT_CLASSES = (
    "category", "categories", "label", "labels", "category_id", "category_ids", "class", "classes",
    "class_name", "category_name", "name",
)  # fmt: skip
#: Name of the split column in files of Vertex AI, also used for files without a header.
ML_USE = "ml_use"
#: Usual names of columns, the most common first, as `plain_name` returns them.
USUAL: Mapping[str, tuple[str, ...]] = {
    "image": (
        "image", "imagepath", "imageuri", "path", "file", "filename", "filepath", "uri", "imagefile",
        "imagefilename", "imagefilepath", "imageurl", "img", "imgpath", "gcsuri", "imagegcsuri", "url",
        "imagename",
    ),
    "label": (
        "label", "class", "classname", "category", "categoryname", "labelname", "labels", "classes",
        "classlabel", "target", "labelid", "classid", "categoryid", "classificationannotation.displayname",
    ),
    "split": (
        "split", "set", "subset", "mluse", "datasplit", "datasetsplit", "partition",
        "dataitemresourcelabels.aiplatform.googleapis.com/mluse",
    ),
    "group": (),
    "sha256": ("sha256", "imagesha256", "filesha256"),
}  # fmt: skip
#: Number of names in a message.
_MAX_NAMES = 30
#: Matches URIs with a scheme.
STORED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")


def names_images(name: str) -> bool:
    """Returns whether a name is usual for the column of images."""
    return plain_name(name) in USUAL["image"]


def usual_columns(role: str, header: Sequence[str], first: Mapping[str, object]) -> list[str]:
    """Returns the columns with usual names for a role, the likeliest first.

    Args:
      role: One of `ROLES`.
      header: Names of columns.
      first: Known values of columns in the first rows. Columns of images whose values look like paths come
        first.
    """
    plain = {plain_name(name): name for name in reversed(header)}
    usual = [plain[name] for name in USUAL[role] if name in plain]
    if role == "image":
        usual.sort(key=lambda name: not looks_like_path(str(first.get(name, ""))))
    return usual


def looks_like_path(text: str) -> bool:
    """Returns whether a cell looks like the path of an image."""
    text = text.strip()
    return is_image_name(text) or bool(STORED.match(text))


def plain_name(name: str) -> str:
    """Returns a name of a column in lower case, without `_`, `-` and blanks."""
    return re.sub(r"[\s_-]+", "", name.lower())


def named_column(role: str, settings: ConvertSettings) -> str:
    """Returns the column that the settings name for a role; empty if they name none."""
    return str(getattr(settings, f"{role}_column"))


def named_columns(settings: ConvertSettings, used: Collection[str] | None = None) -> dict[str, str]:
    """Returns a mapping of option to the column that it names.

    Args:
      settings: The settings.
      used: Names of the settings to look at; None for all.
    """
    roles = [role for role in ROLES if used is None or f"{role}_column" in used]
    named = {f"--{role}_column": name for role in roles if (name := named_column(role, settings))}
    extra = settings.parsed_extra_columns if used is None or "extra_columns" in used else ()
    return named | {settings.option_of(column): column.name for column in extra}


def check_unique(table_name: str, header: Sequence[str]) -> None:
    """Checks that no two columns have the same name.

    Raises:
      UsageError: If two columns have the same name.
    """
    twice = next((name for i, name in enumerate(header) if name and name in header[:i]), None)
    if twice is not None:
        raise UsageError(f"--input {table_name} has two columns {printable(twice)!r}; rename one of them.")


def check_named(table_name: str, header: Sequence[str], named: Mapping[str, str]) -> None:
    """Checks that the columns that options name exist.

    Args:
      table_name: Name of the table for messages.
      header: Names of its columns.
      named: Option -> column.

    Raises:
      UsageError: If one does not exist.
    """
    for option, name in named.items():
        if name not in header:
            option_text = f"{option} {name}" if option.endswith("_column") else option
            raise UsageError(
                f"{option_text}: {table_name} has no such column, it has {names_shown(header)}"
                f"{nearest(name, header) or '.'}"
            )


def choose_columns(
    table_name: str, header: Sequence[str], settings: ConvertSettings, first: Mapping[str, object]
) -> tuple[str, ...]:
    """Returns the names of the columns for `ROLES`; a name is empty if there is no such column.

    Args:
      table_name: Name of the manifest for messages.
      header: Names of its columns.
      settings: Settings, which may name columns.
      first: Known values of columns in the first rows. Among columns with usual names for images, those whose
        values look like paths take precedence.

    Raises:
      UsageError: If a named or needed column does not exist, or two have the same name.
    """
    check_unique(table_name, header)
    check_named(table_name, header, named_columns(settings))
    chosen: list[str] = []
    for role in ROLES:
        usual = usual_columns(role, [name for name in header if name not in chosen], first)
        chosen.append(named_column(role, settings) or next(iter(usual), ""))
    if not chosen[0]:
        raise UsageError(
            f"--input {table_name}: none of its columns ({names_shown(header)}) has a usual name for images; "
            "name the column with their paths with --image_column."
        )
    return tuple(chosen)


def names_shown(header: Sequence[str]) -> str:
    """Returns a list of names of columns or features for a message, of many the first ones."""
    names = ", ".join(printable(name)[:60] for name in header[:_MAX_NAMES] if name)
    return names + (", ..." if len(header) > _MAX_NAMES else "")
