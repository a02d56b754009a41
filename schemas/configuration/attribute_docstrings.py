"""Reads the docstrings below the attributes of a class, which Python does not keep."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise


@cache
def attribute_docstrings(cls: type) -> Mapping[str, str]:
    """Returns the attributes that a class has itself, each with the docstring below it on one line.

    This reads the source, which takes milliseconds. Only descriptions for people need it.
    """
    module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (definition,) = (
        node for node in module.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    docstrings = {}
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                docstrings[name] = " ".join(docstring.split())
    return docstrings
