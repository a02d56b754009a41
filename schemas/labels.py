"""Class names in the order of ids, and the files that list them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.units import counted

Value = TypeVar("Value")

#: Class of an image without a class if the layout requires one (as in TFDS's unlabelled splits).
UNLABELLED = -1


class ClassId(NamedTuple):
    """A class name with the id that its source gives it, and a readable name if the class name is a code."""

    name: str
    id: int
    text: str = ""


#: Largest id up to which ids of a source are kept. Every id below it takes a line in the side files.
MAX_OWN_ID = 1_000_000


def order_labels(
    seen: Iterable[str],
    carried: Sequence[str] = (),
    own_ids: Mapping[str, int] | None = None,
    first_label: int = 0,
) -> tuple[str, ...]:
    """Returns class names in the order of ids: carried names keep their place, new ones follow.

    If the source has an id for every name, these ids are used. Ids without a name are named by their number,
    until a name takes the id. If the smallest id is below the layout's first id, all ids are shifted up. The
    source's ids are ignored if they would move a carried name. Then new names are sorted by their UTF-8
    bytes, so the order never depends on a locale.

    Args:
      seen: Class names of the images.
      carried: Class names of an earlier build, in the order of ids.
      own_ids: Class name -> id in the source; may contain more names than the images have.
      first_label: Id of the first class.
    """
    seen = set(seen)
    kept: tuple[str, ...] = ()
    if own_ids and seen <= own_ids.keys():
        shift = max(0, first_label - min(own_ids.values()))
        by_id = {number + shift: name for name, number in own_ids.items()}
        kept = tuple(by_id.get(number, str(number)) for number in range(first_label, max(by_id) + 1))
    unambiguous = len(set(kept)) == len(kept) > 0  # no name equals the number of another name's id
    if unambiguous and moved_label(kept, carried[: len(kept)], first_label) is None:
        beyond = carried[len(kept) :]
        if set(kept).isdisjoint(beyond):
            return (*kept, *beyond)
    names = set(carried)
    new = sorted((name for name in seen if name not in names), key=str.encode)
    return (*carried, *new)


def in_name_order(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the same items, sorted by the UTF-8 bytes of their names."""
    return dict(sorted(values.items(), key=lambda item: item[0].encode()))


def moved_label(names: Sequence[str], carried: Sequence[str], first_label: int = 0) -> int | None:
    """Returns the place of the first carried name that new names would move; None if there is none.

    A name that equals the number of its own id stands for an unused id. Another name may take its place,
    unless the new names contain it.
    """
    places = {name: place for place, name in enumerate(names)}
    for place, name in enumerate(carried):
        if places.get(name) == place:
            continue
        if name in places or place >= len(names) or name != str(first_label + place):
            return place
    return None


def check_carried(
    names: Sequence[str], carried: Sequence[str], first_label: int, path: str, plan_path: str
) -> None:
    """Checks that the names of `--class_names` do not change the ids of `--plan_from`.

    Args:
      names: Names in the file, in the order of ids.
      carried: Names in the plan, in the order of ids.
      first_label: Id of the first class.
      path: Path of the file.
      plan_path: Path of the plan.

    Raises:
      UsageError: If an id would change; the message names the first such class.
    """
    place = moved_label(names, carried, first_label)
    if place is None:
        return
    name, number = carried[place], first_label + place
    if name in names:
        what = f"gives class {name!r} the id {first_label + names.index(name)}"
        todo = f"list it as number {place + 1}"
    else:
        what = f"lacks class {name!r}"
        todo = f"list it as number {place + 1} (--keep_labels leaves its images out)"
    raise UsageError(
        f"--class_names {path} {what}, which has id {number} in --plan_from {plan_path}, and ids stay as "
        f"they are from build to build: {todo}, or leave one of the two options out."
    )


def merge_class_ids(class_ids: Iterable[ClassId]) -> dict[str, int]:
    """Returns class name -> id according to all sources; empty if they contradict each other.

    Numbers above `MAX_OWN_ID` or below 0 are not accepted as ids.
    """
    ids: dict[str, int] = {}
    for name, number in sorted({item[:2] for item in class_ids}):
        if ids.setdefault(name, number) != number or not 0 <= number <= MAX_OWN_ID:
            return {}
    return ids if len(set(ids.values())) == len(ids) else {}


def merge_class_texts(class_ids: Iterable[ClassId]) -> dict[str, str]:
    """Returns class name -> readable name for names that are codes, if the sources agree on it."""
    texts: dict[str, set[str]] = {}
    for item in class_ids:
        if item.text:
            texts.setdefault(item.name, set()).add(item.text)
    return {name: min(found_texts) for name, found_texts in texts.items() if len(found_texts) == 1}


def unused_ids(
    labels: Sequence[str],
    first_label: int,
    known: Container[str],
    carried: Sequence[str] = (),
    carried_unused: Container[int] = (),
) -> tuple[int, ...]:
    """Returns the ids without a class; `order_labels` named them by their number.

    Args:
      labels: Class names in the order of ids.
      first_label: Id of the first class.
      known: Class names that images have or the source lists.
      carried: Class names of an earlier build, in the order of ids.
      carried_unused: Ids without a class in that build.
    """
    return tuple(
        number
        for number, name in enumerate(labels, first_label)
        if name == str(number)
        and name not in known
        and (number in carried_unused or name not in carried[number - first_label : number - first_label + 1])
    )


def labels_txt(classes: Mapping[int, str]) -> str:
    """Returns the text of `labels.txt`: TF-Slim's `id:name` lines (research/slim/datasets/dataset_utils.py).

    A line break inside a name (file systems allow it) is written as `\\n`, and other
    control characters likewise. Tabs stay, and so do Unicode's line separators, which do not end a line here.

    Args:
      classes: Id -> class name, in the order of ids.
    """
    lines = ((number, escape_controls(name, keep="\t\u2028\u2029")) for number, name in classes.items())
    return "".join(f"{number}:{name}\n" for number, name in lines)


def lines_of(text: str) -> list[str]:
    """Returns the lines of a file of class names. Names may contain characters that end a line elsewhere."""
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))]
    return [line for line in lines if line]


def numbered_names(names: Sequence[str], first: int = 0) -> Mapping[str, str]:
    """Returns number as text -> class name, for sources whose classes are numbers of names.

    The result is empty if a name is itself the number of another name.

    >>> numbered_names(("cat", "dog"))
    {'0': 'cat', '1': 'dog'}
    >>> numbered_names(("1", "2"))
    {}

    Args:
      names: Class names in the order of ids; empty for an id without a class.
      first: Number of the first name.
    """
    numbers = {str(number): name for number, name in enumerate(names, first) if name}
    return numbers if all(numbers.get(name, name) == name for name in names) else {}


def check_numbering(seen: Container[str], names: Sequence[str], first_label: int, path: str) -> None:
    """Checks that a source does not count its classes from 1 if the names are counted from 0.

    Args:
      seen: Classes of the images, with names instead of numbers.
      names: Names in the `--class_names` file, in the order of ids; number 0 stands for the first.
      first_label: Id of the first class.
      path: Path of the file.

    Raises:
      UsageError: If it seems to do so, because each class would get the name of the next one.
    """
    beyond = str(len(names))
    if names[0] in seen or beyond not in seen or beyond in names or str(len(names) + 1) in seen:
        return
    todo = "write the lines as `1:name`" if first_label else "put a line for number 0 before the first"
    raise UsageError(
        f"--class_names {path} names {counted(len(names), 'class')}, and the source counts them from 1 to "
        f"{beyond}, not from 0: each class would get the name of the next one; {todo}."
    )


def parse_class_names(text: str, path: str, first_label: int = 0) -> tuple[tuple[str, ...], int]:
    """Reads a `--class_names` file: one name per line, in the order of ids, or `id:name` lines.

    `id:name` lines may skip ids, as COCO does. The result has an empty name for each skipped id.

    Args:
      text: Content of the file.
      path: The file, as the messages name it.
      first_label: Id of the first class; ids may begin there or at 0.

    Returns:
      The names, and the number of the first one in the file: its id, or 0 without ids.

    Raises:
      UsageError: If a name is empty or occurs twice, or ids do not ascend from the first one.
    """
    names, begin = lines_of(text), 0
    if names and all(re.match(r"[0-9]+:", name) for name in names):
        pairs = [name.split(":", 1) for name in names]
        ids = [int(number) for number, _ in pairs]
        begin = first_label if ids[0] else 0
        if ids[0] != begin or ids != sorted(set(ids)) or ids[-1] > MAX_OWN_ID:
            raise UsageError(
                f"--class_names {path}: ids must begin with {begin}, grow from line to line and end by "
                f"{MAX_OWN_ID:,}; renumber them."
            )
        by_id = {number: name.strip() for number, (_, name) in zip(ids, pairs)}
        if "" in by_id.values():
            raise UsageError(
                f"--class_names {path}: id {next(i for i in ids if not by_id[i])} has no name; give it one."
            )
        names = [by_id.get(number, "") for number in range(begin, ids[-1] + 1)]
    if not names:
        raise UsageError(f"--class_names {path}: the file names no class; put one name on a line.")
    twice = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if twice:
        raise UsageError(f"--class_names {path}: {twice[0]!r} occurs twice; remove one of them.")
    return tuple(names), begin
