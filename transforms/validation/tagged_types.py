"""Declares the types of a step's outputs, for each version of Beam."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import apache_beam as beam

#: Beam 2.70 and 2.71 accept only the type of the main output.
_ACCEPTS_TAGS = "tagged_type_hints" in inspect.signature(beam.PTransform.with_output_types).parameters


def with_tagged_types(step: beam.ParDo, main: type, tagged: Mapping[str, Any]) -> beam.ParDo:
    """Declares the types of the main output and of the tagged outputs of a step."""
    return step.with_output_types(main, **(tagged if _ACCEPTS_TAGS else {}))
