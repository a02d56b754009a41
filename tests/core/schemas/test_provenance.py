"""Statements about the origin of a dataset: what is accepted, and what an error says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.provenance import Creator, Provenance, parse_creators


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("license", "a\nb", "one line"),
        ("license", "  ", "blank"),
        ("license", "\udcff", "not valid UTF-8"),
        ("url", "example.com", "a web address such as"),
        ("url", "https://a b", "a web address such as"),
        ("url", "javascript:alert(1)", "a web address such as"),
        ("creator", "a;;b", "a name is empty"),
        ("creator", "org:", "a name is empty"),
        ("description", "\x1b[31m", "control character"),
        ("date_published", "31.3.2026", "a date such as"),
        ("date_published", "2026-02-30", "a date such as"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str, message: str) -> None:
    settings = replace(ConvertSettings(input=("in",)), **{name: value})
    with pytest.raises(UsageError, match=f"(?s)--{name} .*{message}"):
        settings.check()


def test_creators_are_persons_and_organizations() -> None:
    assert parse_creators("Ada; org: A & B ;Bo") == [
        Creator("Ada", False), Creator("A & B", True), Creator("Bo", False),
    ]  # fmt: skip
    assert parse_creators("") == []


@pytest.mark.parametrize("value", [{"licence": "x"}, {"url": 1}, {"url": ""}, ["url"]])
def test_a_damaged_document_is_not_read(value: object) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        Provenance.from_json(value)  # type: ignore[arg-type]
