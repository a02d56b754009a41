"""`import shardwright` and `python -m shardwright`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile import make_tree

import shardwright
from shardwright import loader, schemas, transforms


@pytest.mark.parametrize("module", [shardwright, loader, transforms], ids=lambda module: module.__name__)
def test_every_public_name_exists(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names) and set(names) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None, name


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shardwright' has no attribute 'convrt'"):
        _ = shardwright.convrt
    assert shardwright.__version__ == schemas.__version__


def test_import_is_light_and_the_module_is_the_command(tmp_path: Path) -> None:
    script = (
        "import sys, shardwright\nassert not {'apache_beam', 'tensorflow', 'numpy', 'PIL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "shardwright", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, f"shardwright {shardwright.__version__}\n")


def test_the_package_converts_and_reads(tmp_path: Path) -> None:
    made = shardwright.convert(
        input=str(make_tree(tmp_path / "in")), output=str(tmp_path / "out"), resize="8"
    )
    records = shardwright.Records(str(tmp_path / "out"), split="train")
    assert len(records) == made.records > 0 and made.splits == {"train": made.records}
    assert made.labels == records.labels


def test_a_result_shows_itself_in_short_and_escaped(tmp_path: Path) -> None:
    folder = next(path for path in make_tree(tmp_path / "in").iterdir() if path.is_dir())
    (folder / "empty.jpg").touch()
    made = shardwright.convert(input=tmp_path / "in", output=tmp_path / "<b>out", max_bad_fraction=1)
    assert repr(made).startswith(f"<{tmp_path}/<b>out: ") and f"(train: {made.records:,})" in repr(made)
    page = made._repr_html_()
    assert "&lt;b&gt;out" in page and "<b>" not in page and page.count("<tr>") == 3
    assert "quarantined: 1 EMPTY_FILE" in page


def test_all_functions_take_paths(tmp_path: Path) -> None:
    made = shardwright.convert(input=make_tree(tmp_path / "in"), output=tmp_path / "out", max_bad_fraction=1)
    out = Path(made.path)
    sheet = tmp_path / "sheet.png"
    assert shardwright.inspect(out, contact_sheet=sheet)["splits"]["train"]["records"] == made.records
    assert sheet.exists()
    assert shardwright.validate(out, mode="fast", report=tmp_path / "findings.json").passed
    assert shardwright.diff(out, out, report=tmp_path / "diff.json").drift
    assert shardwright.salvage(out, tmp_path / "saved").dataset.all_records == made.records
    assert shardwright.plan(input=tmp_path / "in", plan_from=out / "dataset.json")
    assert shardwright.open_dataset(out) == made.dataset and shardwright.pin(out) == str(out)
    assert len(shardwright.Records(out)) == made.records and shardwright.select(out)


def test_the_dataset_has_one_name_in_all_functions() -> None:
    names = ("Records", "inspect", "load", "open_dataset", "pin", "salvage", "select", "validate")
    first = {next(iter(inspect.signature(getattr(shardwright, name)).parameters)) for name in names}
    assert first == {"dataset"}
