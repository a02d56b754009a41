"""A gate that a dataset or a version does not pass."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardwright.schemas.codes import Severity


class Violation(NamedTuple):
    """One gate that a dataset or a version does not pass, or a warning of that gate.

    Attributes:
      gate: The group of gates: `findings`, `expectations`, `drift`, `bad_images` or `rolled_back`.
      name: Name of the gate, or code of the finding.
      severity: An error refuses the dataset, a warning does not.
      message: One line.
      value: The actual value; None if it is not a number.
      limit: The allowed value; None if there is no limit.
    """

    gate: str
    name: str
    severity: Severity
    message: str
    value: float | None = None
    limit: float | str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the violation as `version.json` stores it."""
        return {"gate": self.gate, "name": self.name, "severity": self.severity, "message": self.message}

    def as_measured_json(self) -> dict[str, Any]:
        """Returns the violation as the report of `diff` stores it."""
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "severity": self.severity,
            "message": self.message,
        }
