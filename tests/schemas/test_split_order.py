"""Splits have one order, whatever the order of their names in the input."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.hostile import document, picture

from shardwright.pipelines import cli
from shardwright.schemas.split_order import by_split, in_split_order

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["test", "train", "validation"], ["train", "validation", "test"]),
        (["Test", "Val", "Train"], ["Train", "Val", "Test"]),
        (["none", "extra", "test", "a", "train"], ["train", "test", "a", "extra", "none"]),
        (["training", "testing", "dev", "eval"], ["training", "dev", "eval", "testing"]),
        ([], []),
    ],
)
def test_splits_have_one_order(names: list[str], ordered: list[str]) -> None:
    assert in_split_order(names) == ordered
    assert list(by_split(dict.fromkeys(names, 0))) == ordered


@pytest.mark.parametrize("own", [True, False])
def test_every_table_and_file_has_that_order(capsys: Capture, tmp_path: Path, own: bool) -> None:
    wanted = ["train", "validation", "test"]
    for split in wanted if own else [""]:
        for name in ("ant", "bee"):
            folder = tmp_path / "in" / split / name
            folder.mkdir(parents=True)
            for i in range(2 if own else 20):
                (folder / f"{i}.png").write_bytes(picture(hash((split, name, i)) % 200))
    out = str(tmp_path / "out")
    options = [] if own else ["--splits", "test=0.3,train=0.4,validation=0.3"]

    def shown() -> list[str]:
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
        return [line[0] for line in lines if line[0] in wanted]

    assert cli.main(["plan", str(tmp_path / "in"), *options]) == 0
    assert shown() == wanted
    assert cli.main(["convert", str(tmp_path / "in"), out, *options]) == 0
    assert shown() == wanted
    assert cli.main(["inspect", out, "--records", "0"]) == 0
    assert shown() == wanted * 2  # the splits, and the outcomes of their files
    made = document(Path(out))
    assert list(made["splits"]) == list(made["class_counts"]) == wanted
    assert list(made["ledger"]["splits"]) == list(made["plan"]["shards"]) == wanted
