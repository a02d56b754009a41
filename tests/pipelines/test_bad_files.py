"""Wrong files that settings name: class names, job files, plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import check_books, document, outcomes, picture, refused, run

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file names no class"),
        (b"ant\nant\n", "'ant' occurs twice"),
        (b"0:ant\n2:bee\n1:cow\n", "ids must begin with 0, grow from line to line"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (None, "is a directory"),
    ],
)
def test_wrong_class_names_are_refused(
    capfd: Capture, tmp_path: Path, tree: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "names"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--class_names", file)
    assert says in refused(capfd, tmp_path, *argv)


def damaged(change: Any) -> Any:
    def apply(document: dict[str, Any]) -> bytes:
        change(document)
        return json.dumps(document).encode()

    return apply


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda d: b'{"a":\n[1,', "is not JSON (line 2, column 4)"),
        (lambda d: b"", "is not JSON"),
        (lambda d: b"\xff", "is not JSON"),
        (lambda d: b"[" * 100_000, "is not JSON"),
        (lambda d: b"null", "is not a dataset.json"),
        (lambda d: b"[]", "is not a dataset.json"),
        (lambda d: b"{}", "is not a dataset.json"),
        (lambda d: b'{"format_version": 99}', "has format_version 99; this version"),
        (lambda d: b'{"format_version": 1}', "is damaged"),
        (damaged(lambda d: d["plan"]["settings"].update(foo=1)), "--plan_from: unknown setting 'foo'"),
        (damaged(lambda d: d["plan"]["settings"].update(seed=[])), "--seed takes one value"),
        (damaged(lambda d: d["plan"]["settings"].update(fit="x")), "--fit x: choose one of"),
        (damaged(lambda d: d["plan"]["shards"].update(train=0)), "is damaged"),
        (damaged(lambda d: d["plan"]["shards"].update({"../x": 1})), "is damaged"),
        (damaged(lambda d: d["plan"].update(labels=["a", 1])), "is damaged"),
        (damaged(lambda d: d["plan"].update(labels="ab")), "is damaged"),
        (damaged(lambda d: d["plan"].update(labels=["a", "a"])), "is damaged"),
        (damaged(lambda d: d.pop("plan")), "is damaged"),
    ],
)
def test_wrong_plans_are_refused(
    capfd: Capture, tmp_path: Path, tree: Path, dataset: Path, make: Any, says: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(make(document(dataset)))
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--plan_from", plan)
    assert says in refused(capfd, tmp_path, *argv)


def test_images_of_unknown_classes_are_quarantined(capfd: Capture, tmp_path: Path, tree: Path) -> None:
    names = tmp_path / "names"
    names.write_text("cow\nant\n")
    argv = ["convert", "--input", tree, "--output", tmp_path / "out", "--class_names", names]
    assert run(capfd, *argv, "--max_bad_fraction", "0.5").code == 0
    found = outcomes(tmp_path / "out")
    assert {key for key, what in found.items() if what == "UNKNOWN_LABEL"} == {
        key for key in found if key.startswith("bee/")
    }
    assert document(tmp_path / "out")["plan"]["labels"] == ["cow", "ant"]
    assert all(e["stage"] == "build" for e in check_books(tmp_path / "out").values() if e.get("reason"))


def test_a_copy_in_an_unknown_class_does_not_replace_the_known_one(capfd: Capture, tmp_path: Path) -> None:
    for name in ("aaa/1.png", "bee/1.png", "bee/2.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(picture(7))
    (tmp_path / "names").write_text("bee")
    argv = ["convert", "--input", tmp_path / "in", "--output", tmp_path / "out", "--dedupe=exact"]
    assert run(capfd, *argv, "--class_names", tmp_path / "names", "--max_bad_fraction=1").code == 0
    assert outcomes(tmp_path / "out") == {
        "aaa/1.png": "UNKNOWN_LABEL",
        "bee/1.png": "written",
        "bee/2.png": "bee/1.png",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"resiz: 3", "unknown setting 'resiz'; did you mean resize?"),
        (b"zzzz: 3", "unknown setting 'zzzz'."),
        (b"verbose: true", "unknown setting 'verbose'"),
        (b"- resize", "write one `setting: value` on each line"),
        (b"resize", "write one `setting: value` on each line"),
        (b"0", "write one `setting: value` on each line"),
        (b"a: [", "is not YAML: "),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"seed: 2020-13-45", "line 1, column 7: this is not YAML: this value cannot be read"),
        (b"seed: " + b"[" * 3000, "nested too deeply"),
        (b"seed: !!python/object:os.system x", "is not YAML: write the value without the tag !!python"),
        (b"input: 5", "write one path or a list of paths"),
        (b"input: [a, [b]]", "write one path or a list of paths"),
        (b"seed: 1.5", "is not a whole number"),
        (b"seed: .inf", "is not a number"),
        (b"quality: true", "is not a number"),
        (b"overwrite: 3", "write true or false"),
        (b"background: #ffffff", "background has no value; quote one that begins with #."),
        (b"class_names: [ant, bee]", "takes one value, not several"),
        (b"resize: {a: 1}", "takes one value, not several"),
        (b"shards: 8\nshard_size: 1MB", "both choose the number of shards"),
    ],
)
def test_wrong_job_files_are_refused(
    capfd: Capture, tmp_path: Path, tree: Path, text: bytes, says: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_bytes(text)
    argv = ["convert", "--output", tmp_path / "out", "--job", job]
    if not text.startswith(b"input"):
        argv += ["--input", tree]
    assert says in refused(capfd, tmp_path, *argv)
