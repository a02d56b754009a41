"""YAML without dangerous features: aliases, object tags, duplicate keys and huge files are errors."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

#: Maximum number of characters: more than people write by hand, few enough for a slow parser.
_LONGEST = 1 << 17
#: Prefix of the tags that YAML writes as `!!name`.
_YAML_TAGS = "tag:yaml.org,2002:"


class NotPlain(ValueError):
    """The text is not YAML of this restricted kind.

    Attributes:
      line: Line of the problem, from 1; 0 if unknown.
      column: Column of the problem, from 1; 0 if unknown.
      why: Description of the problem.
    """

    def __init__(self, why: str, mark: Any = None) -> None:
        self.line: int = mark.line + 1 if mark else 0
        self.column: int = mark.column + 1 if mark else 0
        self.why = why
        super().__init__(f"it is not YAML in line {self.line}, column {self.column}: {why}" if mark else why)


class WrongValue(ValueError):
    """A value in a file is wrong.

    Attributes:
      path: Keys that lead to the value.
    """

    def __init__(self, message: str, *path: Any) -> None:
        super().__init__(message)
        self.path = tuple(map(str, path))


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which also refuses what PyYAML ignores."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # a few lines of aliases can expand to gigabytes
            event = self.peek_event()
            raise yaml.MarkedYAMLError(
                problem="write out what *name stands for", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            problem = "this value cannot be read; put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"{key!r} occurs twice", problem_mark=key_node.start_mark)
            seen |= {key} if isinstance(key, Hashable) else set()
        return super().construct_mapping(node, deep)


def _refuse_tag(_: _Loader, node: Any) -> None:
    tag = node.tag.replace(_YAML_TAGS, "!!")
    raise yaml.MarkedYAMLError(problem=f"write the value without the tag {tag}", problem_mark=node.start_mark)


_Loader.add_constructor(None, _refuse_tag)


class _TextLoader(_Loader):
    """A loader that keeps `no`, `010`, `1.10` and `12:30` as texts."""


# Keyed by the first character of the values that they match.
_TextLoader.yaml_implicit_resolvers = {
    first: [pair for pair in resolvers if pair[0].endswith(":null")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_plain_yaml(text: str, as_texts: bool = False) -> Any:
    """Returns the content of a YAML text.

    Args:
      text: The text.
      as_texts: Whether every key and value except null is a text, also if it looks like a number.

    Raises:
      NotPlain: If it is not such a text; the message says why and where.
    """
    if len(text) > _LONGEST:
        raise NotPlain(f"it has more than {_LONGEST:,} characters; make it shorter")
    try:
        return yaml.load(text, _TextLoader if as_texts else _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join((error.problem or error.context or "").split())
        raise NotPlain(why.rstrip(".")[:200], mark) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line_start = before.rfind("\n") + 1
        mark = yaml.Mark("", error.position, before.count("\n"), len(before) - line_start, None, 0)
        raise NotPlain(f"remove the control character {text[error.position]!r}", mark) from None
    except RecursionError:
        raise NotPlain("it is nested too deeply; make it flatter") from None


def places_of_keys(text: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """Returns the path of keys -> line and column, from 1, for each key in a text's mappings.

    Args:
      text: A text that `load_plain_yaml` accepts.
    """
    places: dict[tuple[str, ...], tuple[int, int]] = {}

    def walk(node: Any, path: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = (*path, str(key.value))
                places[below] = key.start_mark.line + 1, key.start_mark.column + 1
                walk(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                walk(item, (*path, str(number)))

    walk(yaml.compose(text, _Loader), ())
    return places
