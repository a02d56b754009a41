"""Odd trees and odd names: every file is accounted for, and every name is preserved."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

import pytest
from helpers.hostile import (
    check_books,
    document,
    make_tree,
    outcomes,
    picture,
    refused,
    run,
    run_forked,
    shard_hashes,
)

from shardwright.core.records.compression import read_lazily
from shardwright.core.records.framing import Record
from shardwright.pipelines.convert import convert
from shardwright.schemas.image_ref import key_from_bytes, printable

Capture = pytest.CaptureFixture[str]

NAMES = (
    b"a b", b" lead", b"x[1]", b"st*ar", b"q?", b"100%", b"%41", b"em\xf0\x9f\x98\x80ji", b"q'uo\"te",
    b"new\nline", b"cr\r", b"tab\t", b"\xff\xfe", b"caf\xe9", b"back\\slash", b"<script>", b"esc\x1b[31m",
    b"-dash", b"a!b", b"a:b", b"a,b", b"k=v", b"$HOME", b"~", b"#x", b"&amp;", b"L" * 200,
    "\u202ertl".encode(), "\u2028".encode(),
)  # fmt: skip


def convert_tree(root: Path, source: Path, **settings: object) -> Path:
    """Converts a tree and accepts all its faults, and checks the ledgers."""
    output = root / f"out{len(list(root.glob('out*')))}"
    convert(input=str(source), output=str(output), max_bad_fraction=1, **settings)
    check_books(output)
    return output


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("dedupe", ["none", "exact"])
def test_every_kind_of_file_is_accounted_for(tmp_path: Path, dedupe: str) -> None:
    tree = tmp_path / "in"
    images = {
        "ant/UP.JPG": picture(1, "JPEG"), "ant/noext": picture(2), "ant/photo.txt": picture(3),
        "ant/wrong.jpg": picture(4, "GIF"), "ant/deep/er/x.png": picture(5), "bee/1.Png": picture(6),
    }  # fmt: skip
    for name, data in images.items():
        put(tree / name, data)
    for name in (".git/a.png", ".DS_Store", "ant/.ipynb_checkpoints/a.png", "ant/.hidden.png", "bee/._1.png"):
        put(tree / name, picture(7))
    put(tree / "README.md", b"hello")
    put(tree / "bee/labels.csv", b"a,b\n")
    put(tree / "bee/empty", b"")
    put(tree / "bee/empty.png", b"")
    put(tree / "bee/text.jpg", b"these are words")
    put(tree / "stray.png", picture(8))
    (tree / "bee/folder.png").mkdir()
    os.mkfifo(tree / "bee/pipe.png")
    os.mkfifo(tree / "bee/pipe")
    (tree / "bee/link.png").symlink_to("1.Png")
    (tree / "bee/broken.png").symlink_to("nowhere.png")
    (tree / "bee/broken").symlink_to("nowhere")
    (tree / "bee/self.png").symlink_to("self.png")
    (tree / "bee/up").symlink_to("..")
    put(tmp_path / "elsewhere/1.png", picture(9))
    (tree / "linked").symlink_to(tmp_path / "elsewhere")
    (tree / "linked-twice").symlink_to("linked")
    output = convert_tree(tmp_path, tree, dedupe=dedupe)
    expected = dict.fromkeys([*images, "bee/link.png", "linked/1.png", "linked-twice/1.png"], "written")
    expected |= dict.fromkeys(
        [".git/a.png", ".DS_Store", "ant/.ipynb_checkpoints/a.png", "ant/.hidden.png", "bee/._1.png"],
        "dotfile",
    )
    expected |= dict.fromkeys(["README.md", "bee/labels.csv", "bee/empty", "bee/broken"], "not_an_image")
    expected |= dict.fromkeys(["bee/pipe.png", "bee/pipe"], "special_file")
    expected |= dict.fromkeys(["bee/broken.png", "bee/self.png"], "UNREADABLE")
    expected |= {
        "bee/empty.png": "EMPTY_FILE", "bee/text.jpg": "NOT_AN_IMAGE",
        "stray.png": "UNKNOWN_LABEL", "bee/up": "symlink_loop",
    }  # fmt: skip
    if dedupe == "exact":
        expected |= {"bee/link.png": "bee/1.Png", "linked/1.png": "linked-twice/1.png"}
    assert outcomes(output) == expected
    lines = [json.loads(line) for line in (output / "quarantine.jsonl").read_text().splitlines()]
    assert all(line["message"] and line["stage"] and line["uri"].startswith(str(tree)) for line in lines)


def test_folders_named_like_splits_keep_their_splits(tmp_path: Path) -> None:
    tree = tmp_path / "in"
    for split in ("train", "val", "test"):
        make_tree(tree / split, images=4)
    put(tree / "stray.png", picture(50))
    put(tree / "labels.csv", b"a,b\n")
    put(tree / "val/stray.png", picture(51))
    put(tree / ".git/x.png", picture(52))
    put(tree / "test/ant/.ipynb_checkpoints/x.png", picture(53))
    output = convert_tree(tmp_path, tree, splits="a=0.5,b=0.5")
    splits = document(output)["ledger"]["splits"]
    assert {name: (s["listed"], s["written"]) for name, s in splits.items()} == {
        "train": (7, 4), "val": (5, 4), "test": (5, 4),
    }  # fmt: skip
    found = outcomes(output)
    assert found["stray.png"] == found["val/stray.png"] == "UNKNOWN_LABEL"
    assert found["labels.csv"] == "not_an_image"
    assert found[".git/x.png"] == found["test/ant/.ipynb_checkpoints/x.png"] == "dotfile"
    assert document(output)["plan"]["labels"] == ["ant", "bee"]


def test_folders_deeper_than_pythons_recursion_limit_are_read(tmp_path: Path) -> None:
    # Outside the folder of the session, because pytest could not remove what a killed worker left there.
    deep = make_tree(Path(tempfile.mkdtemp()))
    folder = os.open(deep / "ant", os.O_RDONLY)
    depth = 1200
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    file = os.open("x.png", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
    os.write(file, picture(99))
    os.close(file)
    os.close(folder)
    try:
        output = convert_tree(tmp_path, deep)
        assert outcomes(output)["ant/" + "d/" * depth + "x.png"] == "written"
    finally:
        # Shutil.rmtree would exceed the recursion limit.
        subprocess.run(["rm", "-rf", deep], check=True)


def test_cyclic_links_end(tmp_path: Path) -> None:
    make_tree(tmp_path / "in")
    (tmp_path / "in/ant/to-bee").symlink_to("../bee")
    (tmp_path / "in/bee/to-ant").symlink_to("../ant")
    found = outcomes(convert_tree(tmp_path, tmp_path / "in"))
    assert found["ant/to-bee/to-ant"] == found["bee/to-ant/to-bee"] == "symlink_loop"
    assert found["ant/to-bee/001.png"] == found["bee/to-ant/002.png"] == "written"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders_are_accounted_for(capfd: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    (tree / "ant/000.jpg").chmod(0)
    assert outcomes(convert_tree(tmp_path, tree))["ant/000.jpg"] == "UNREADABLE"
    (tree / "ant").chmod(0)
    try:
        argv = ("convert", "--input", tree, "--output", tmp_path / "new")
        assert "Cannot list" in refused(capfd, tmp_path, *argv, code=3)
    finally:
        (tree / "ant").chmod(0o700)


def keys_in_records(dataset: Path) -> list[bytes]:
    """Returns the keys in the records themselves."""
    tf = pytest.importorskip("tensorflow")
    return [
        tf.train.Example.FromString(item.data).features.feature["image/filename"].bytes_list.value[0]
        for name in shard_hashes(dataset)
        for item in read_lazily(str(dataset / name))
        if isinstance(item, Record)
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dedupe", ["none", "exact"])
def test_odd_names_are_preserved_in_records_ledgers_and_quarantine(
    capfd: Capture, tmp_path: Path, dedupe: str
) -> None:
    tree = tmp_path / "in"
    expected = {}
    for i, name in enumerate(NAMES):
        for suffix, data in ((b".png", picture(i)), (b".jpg", b"no image %d" % i)):
            path = os.path.join(os.fsencode(tree), name, name + suffix)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
            key = key_from_bytes(name + b"/" + name + suffix)
            expected[key] = "written" if suffix == b".png" else "NOT_AN_IMAGE"
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--max_bad_fraction=1")
    done = run(capfd, *argv, f"--dedupe={dedupe}", "--resize=4", "--verify=full")
    assert (done.code, done.err) == (0, "")
    assert outcomes(tmp_path / "out") == expected
    assert sorted(keys_in_records(tmp_path / "out")) == sorted(
        key.encode() for key, what in expected.items() if what == "written"
    )
    labels = document(tmp_path / "out")["plan"]["labels"]
    assert labels == sorted((key_from_bytes(name) for name in NAMES), key=str.encode)
    assert (tmp_path / "out/labels.txt").read_bytes().count(b"\n") == len(NAMES)
    for argv in (
        ("validate", "--dataset", tmp_path / "out"),
        ("plan", "--input", tree),
        ("inspect", "--dataset", tmp_path / "out"),
    ):
        done = run(capfd, *argv)
        assert (done.code, done.err) == (0, ""), done


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(b"/".join(NAMES), id="nested"),  # all kinds of names, one below the other
        pytest.param(b"100%\xff", id="bytes"),
        pytest.param(b"-~$HOME#a=b", id="shell"),
        pytest.param(b"a b'\"\\", id="quotes", marks=pytest.mark.slow),
        pytest.param(b"x[1]*?", id="glob", marks=pytest.mark.slow),
        pytest.param("em\U0001f600\u202e".encode(), id="emoji", marks=pytest.mark.slow),
        pytest.param(b"new\nline\x1b[31m<script>", id="control", marks=pytest.mark.slow),
    ],
)
def test_odd_names_in_the_paths_of_input_and_output_work(capfd: Capture, tmp_path: Path, name: bytes) -> None:
    place = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    tree = f"{place}-in"
    make_tree(Path(tree), images=3)
    (Path(tree) / "ant/bad.png").write_bytes(b"bad")
    output = Path(place)
    argv = ("convert", f"--input={tree}", f"--output={place}")
    done = run(capfd, *argv)
    assert (done.code, done.err.count("\n"), "Traceback" in done.err) == (1, 1, False), done
    assert run(capfd, *argv, "--resume", "--max_bad_fraction=1").code == 0
    assert run(capfd, *argv, "--overwrite", "--max_bad_fraction=1", "--dedupe=exact").code == 0
    assert document(output)["name"] == printable(output.name)
    assert outcomes(output)["ant/bad.png"] == "NOT_AN_IMAGE"
    for argv in (
        ("validate", f"--dataset={place}"),
        ("inspect", f"--dataset={place}"),
        ("plan", f"--input={tree}", f"--plan_from={place}"),
    ):
        done = run(capfd, *argv)
        assert (done.code, done.err) == (0, ""), done


def test_relative_names_may_look_like_options(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_tree(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    done = run(capfd, "convert", "--input=in", "--output=-o")
    assert done.code == 0
    assert done.out.endswith("next: shardwright inspect ./-o\n")
    check_books(tmp_path / "-o")


def _show_only_ascii() -> None:
    """Makes the streams what they are with `PYTHONIOENCODING=ascii`."""
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        cast(io.TextIOWrapper, stream).reconfigure(encoding="ascii", errors=errors)


def test_a_terminal_that_cannot_show_a_name_does_not_end_the_command(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", classes=["ünï", "\U0001f600"])
    done = run_forked(tmp_path / "log", "plan", "--input", tmp_path / "in", before=_show_only_ascii)
    assert (done.code, done.err) == (0, "") and "\\U0001f600" in done.out


def test_messages_stay_on_one_line_and_show_no_control_characters(capfd: Capture, tmp_path: Path) -> None:
    missing = tmp_path / "a\nb\x1b[31m\u2028c"
    done = run(capfd, "convert", "--input", missing, "--output", tmp_path / "out")
    assert done.code == 2 and done.err.count("\n") == 1 and "\x1b" not in done.err
    assert "a\\nb\\x1b[31m\\u2028c does not exist" in done.err
