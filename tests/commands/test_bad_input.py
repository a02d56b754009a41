"""Wrong commands, settings, inputs, odd trees and odd names: one line, or every file accounted for."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import check_books, document, make_tree, mounted, outcomes, picture, refused, run
from helpers.listing import listed
from helpers.records import by_key
from helpers.trees import put_files

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.image_ref import key_from_bytes
from shardwright.schemas.plain_text import printable

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Path:
    """A folder that holds the input `in`, its dataset `out`, and files and places with mistakes."""
    folder = tmp_path_factory.mktemp("mistakes")
    make_tree(folder / "in")
    shutil.copytree(dataset, folder / "out")
    files = {
        "damaged/dataset.json": json.dumps({**document(dataset), "ledger": {}}).encode(),
        "gates.yaml": b"min_record: 7", "latin.yaml": b"name: caf\xe9",
        "layout.yaml": b"features: {price: {column: price, type: money}}",
        "names": b"bee\nant",
        "clash.csv": b"path,label,split\nin/ant/000.jpg,a,train\nin/bee/001.png,a,data\n",
        "bee": b"bee", "full/versions": b"x",
        "runner.yaml": b"input: in\noutput: new\nrunner:\n  runner: DirectRuner\n",
    }  # fmt: skip
    put_files(folder, files)
    shutil.copytree(dataset, folder / "unfinished")
    (folder / "unfinished/dataset.json").unlink()
    for name, target in (("link", "nowhere"), ("inlink", "in"), ("proc", "/proc")):
        (folder / name).symlink_to(target)
    return folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, mistakes: Path) -> Path:
    """This folder is the current one, and nobody answers questions."""
    monkeypatch.chdir(mistakes)
    monkeypatch.setattr(sys, "stdin", io.StringIO("answers\nthat\nnobody\nasked\n"))
    return mistakes


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("convrt", "there is no command 'convrt'; did you mean convert?"),
        ("convert", "--input is missing"),
        ("convert --input in", "--output is missing"),
        ("convert in out more", "Unexpected argument 'more'; name each of several inputs with --input"),
        ("convert --input in --output out -v", "Unexpected argument '-v'"),
        ("convert --input in --output", "Argument --output: expected one argument"),
        ("convert --input in/ant/000.jpg --output new", "no source recognizes this file"),
        ("convert --input a=nope --output new", "--input nope does not exist"),
        ("convert 'a\nb\x1b[31m\u2028c' new", "a\\nb\\x1b[31m\\u2028c does not exist"),
        ("convert link new", "--input link is neither a folder nor a file; check the path."),
        ("convert --input ftp://x/y --output new", "there is no storage for ftp://"),
        ("convert --input in --output ftp://x/y", "there is no storage for ftp://"),
        ("validate --dataset ftp://x/y", "there is no storage for ftp://"),
        ("plan --input in --plan_from ftp://x", "there is no storage for ftp://"),
        ("plan in --layout images --source labelme", "name the folder with a JSON file for each image"),
        ("plan in --exclude ' , '", "--exclude  , : it names no image; write a pattern such as"),
        ("plan in --skip_formats hiec", "there is no image format 'hiec'; did you mean heic"),
        ("validate", "--dataset is missing"),
        ("validate --dataset nope", "nope does not exist"),
        ("validate --dataset in", "has no dataset.json and no TFRecord files; name the --output"),
        ("validate in@2020", "if '2020' is meant as a version, write a name such as 20261121T020000Z"),
        ("publish in@2020", "which shardwright versions in lists"),
        ("convert in --output=x --output y", "--output has two values, 'x' and 'y'; give it once"),
        ("plan in --min-side=1 --min_side=2", "--min_side has two values, '1' and '2'"),
        ("validate out --expct=gates.yaml", "Unknown option --expct; did you mean --expect?"),
        ("convert in x --overwrite --overwrite=false", "--overwrite has two values, 'true' and"),
        ("rebuild", "Name a job file with --job job.yaml; shardwright init writes one"),
        (
            "rebuild runner.yaml",
            "--job runner.yaml, line 4: runner DirectRuner: Beam has no such runner; did you mean",
        ),
        ("rebuild a.yaml b.yaml", "Name one job file, not 2"),
        ("plan nope --seed=1 --seed=1", "--input nope does not exist"),  # the same value may be given twice
        ("inspect out --split tset", "did you mean test?"),
        ("inspect out/*.tfrecord --split test", "leave it out"),
        ("inspect out --records -1", "--records -1: write a whole number from 0 to 10,000."),
        ("inspect out --thumbnails many", "write a whole number from 1 to 1,024."),
        ("inspect out --stuck_after soon", "--stuck_after soon: write a number from 0.01 to 1,000,000."),
        ("rebuild job.yaml --wait -1", "--wait -1: write a number from 0 to 1,000,000."),
        ("inspect out --contact_sheet sheet.bmp", "ends in .png"),
        ("inspect out/labels.txt", "no TFRecord files"),
        ("inspect out --contact_sheet /proc/here.png", "choose another place with --contact_sheet"),
        ("diff out out --report /proc/here.json", "choose another place with --report"),
        ("report out --output /proc/here.html", "choose another place with --output"),
        ("diff", "not 0; write shardwright diff OLD NEW"),
        ("diff '' out", "write shardwright diff OLD NEW"),
        ("diff in out", "has no dataset.json"),
        ("diff out out/dataset.json", "has no dataset.json"),
        ("diff out odd://x", "there is no storage for odd://"),
        ("diff out damaged", "is damaged"),
        ("diff out out --thresholds gates.yaml", "line 1, column 1"),
        ("layouts detectoin", "There is no layout detectoin; did you mean detection?"),
        ("layouts raw minimal", "Name one layout, not 2."),
        ("layouts nowhere.yaml", "nowhere.yaml: no such file or directory; check the path."),
        ("layouts layout.yaml", "layout.yaml: features: price: "),
        ("layouts 'a\nb\x1b[31m'", "There is no layout a\\nb\\x1b[31m; choose one of classification, "),
        ("report out/*.tfrecord", "--output is missing"),
        ("report out/*.tfrecord --previous x --output y", "leave it out"),
        ("report out --previous nope", "nope"),
        ("init", "--input is missing; name a folder of images."),
        ("init --input=in", "--output is missing; name the directory for the versions of the dataset."),
        ("init --input=a= --output=o", "--input a= has no path after the =; write a=PATH."),
        ("init in o --keep=x", "--keep x: write the number of versions to keep"),
        ("init in o --resume", "Unknown option --resume"),
        ("completion", "There is no completion for ''; choose one of bash, zsh, fish."),
        ("init in o --file=no/", "--file no/ is a directory; name a file"),
        ("validate out --fail_on DRAK", "--fail_on: there is no finding 'DRAK'; did you mean DARK?"),
        ("validate out --fail_on ' dark,light ' --warn_on LIGHT", "--fail_on: LIGHT is also in --warn_on"),
        (
            "validate out --fast --quality",
            "--fast decodes no images and --quality measures all of them; choose one.",
        ),
        ("validate out --expect nowhere.yaml", "--expect nowhere.yaml"),
        ("validate out --html /dev/null", "--html /dev/null is a device or a pipe; name a file."),
        ("validate out --junit .", "--junit . is a directory; name a file in it."),
        ("validate out --report gs://here", "--report gs://here is a directory; name a file in it."),
        ("validate out --report latin.yaml/x.json", "latin.yaml is not a directory; choose another place."),
        ("validate out --report nothing://here/x.json", "no storage"),
        ("validate out --previous nowhere", "--previous nowhere is not a finished dataset"),
        ("validate out --previous . --report x.json", "--previous needs a page to show the differences on"),
        ("validate out another", "Name one dataset, or one pattern in quotes"),
        ("salvage out new", "--output is missing; write shardwright salvage out --output new."),
        ("report out --runner DirectRunnr", "--runner DirectRunnr: Beam has no such runner; did you mean"),
        ("convert clash.csv new --quiet", "data* that selects its shards would also match dataset.json"),
        ("validate out/*.tfrecord --against in", "--against needs a dataset.json"),
        ("validate out --against /nowhere", "--against /nowhere does not exist"),
        ("validate out --image_root in", "name the source with --against"),
        ("validate out --against in --source coco", "--against in holds no COCO JSON"),
    ],
)
def test_wrong_commands_are_refused(capfd: Capture, here: Path, argv: str, says: str) -> None:
    assert says in refused(capfd, here, *shlex.split(argv), code=3 if "/proc/" in argv else 2)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--resizee=3", "Unknown option --resizee; did you mean --resize?"),
        ("--num-worker=3", "did you mean --num_workers?"),
        ("--zzzzzz", "see --help"),
        ("--direct_num_workers=x", "invalid int value: 'x'"),
        ("--overwrite=maybe", "write true or false"),
        ("--runner=Direktrunner", "Beam has no such runner; did you mean DirectRunner?"),
        ("--runner=DataflowRunner", "which Dataflow's workers cannot reach"),
        ("--runner=no.such.Runner", "Beam rejects its options: "),
        ("--layout=x", "choose one of classification, imagenet, "),
        ("--fit=strech", "choose one of stretch, contain, cover, fit, pad; did you mean stretch?"),
        ("--quality=0", "whole number from 1 to 100"),
        ("--max_bad_fraction=2", "--max_bad_fraction 2: write a share from 0 to 1, such as 0.01."),
        ("--folds=1", "--folds 1: write 0, or 2 to 36 folds."),
        ("--resize=100000", "a side has at most 99,999 pixels"),
        ("--max_bad_fraction=5%", "'5%' is not a number; write 0.05."),
        ("--quality=95%", "--quality 95%: '95%' is not a whole number."),
        ("--splits=a=1,b=1e-300", "the shares add up to slightly more than 1"),
        ("--keep_labels=cats", "no such file or directory; name a file with a class name on each line"),
        ("--background=blurple", "is not a color"),
        ("--split_by=(", "is not a regular expression"),
        ("--splits=train=0.5", "the shares add up to 0.5; they must add up to 1."),
        ("--bounds=TOO_MANY_CATS=1", "there is no bound 'TOO_MANY_CATS'"),
        ("--bounds=TOO_MANY_SCANS=0", "whole number from 1"),
        ("--bounds=TOO_MANY_SCANS=7.0", "whole number from 1"),
        (f"--bounds=TOO_MANY_SCANS={'9' * 30}", "whole number from 1"),
        ("--shard_size=0", "must be at least one byte"),
        ("--shards=0", "from 1 to 99999"),
        ("--shards=val=3", "there is no split 'val'; the splits are train."),
        ("--shards=2 --shard_size=1MB", "both choose the number of shards"),
        (
            "--layout=detection --split_mode=stratified --splits=a=0.5,b=0.5",
            "layout detection stores none; choose",
        ),
        ("--overwrite --resume", "leave one of them out"),
        ("--runner=DataflowRunner --dry_run=True --dataflow_job_file=x", "leave out one of the two"),
        ("--image_format=raw --color=keep", "choose --color rgb or gray"),
        ("--class_names=nope", "--class_names nope: no such file or directory"),
        ("--plan_from=out --class_names=bee", "--class_names bee lacks class 'ant', which has id 0 in"),
        ("--plan_from=out --class_names=names", "names gives class 'ant' the id 1, which has id 0 in"),
        ("--plan_from=nope", "--plan_from nope: no such file or directory"),
        ("--job=nope", "--job nope: no such file or directory"),
    ],
)
def test_wrong_settings_are_refused(capfd: Capture, here: Path, option: str, says: str) -> None:
    for command in ("convert in new", "plan in"):
        assert says in refused(capfd, here, *command.split(), *option.split())


def test_dataflow_without_its_packages_names_the_extra(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.dataflow", None)
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--runner=DataflowRunner")
    assert "pip install 'shardwright[dataflow]'" in refused(capfd, tmp_path, *argv)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "is empty; name a folder that holds images, or a table"),
        ({"ant/": b""}, "is empty; name a folder that holds images, or a table"),
        ({"ant/notes.txt": b"hello", "README": b"hello"}, "holds no images: none of its 2 files is an image"),
        ({"1.png": picture(1), "2.png": picture(2)}, "none of its 2 images has a class, such as "),
        ({".git/1.png": picture(1)}, "holds no images"),
    ],
    ids=["empty", "empty class", "text", "flat", "dots"],
)
def test_inputs_without_images_are_refused(
    capfd: Capture, tmp_path: Path, files: dict[str, bytes], says: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name, data in files.items():
        (source / name.rpartition("/")[0]).mkdir(exist_ok=True)
        if data:
            (source / name).write_bytes(data)
    argv = ("convert", "--output", tmp_path / "new" / "out", "--input", source)
    assert says in refused(capfd, tmp_path, *argv)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("place", "code", "says"),
    [
        ("bee", 2, "is a file; name a directory."),
        ("bee/below/it", 2, "bee is a file."),
        ("full", 2, "is not empty; choose another place"),
        ("full --resume", 2, "no run that could be resumed"),
        ("out", 2, "holds a dataset; choose another place, or replace it with --overwrite."),
        ("unfinished", 2, "holds an unfinished run; finish it with --resume"),
        ("link", 2, "is a broken symbolic link"),
        ("in", 2, "lies inside --input"),
        ("in/ant/out", 2, "lies inside --input"),
        ("inlink/out", 2, "lies inside --input"),
        (".", 2, "lies inside --output"),
        ("x" * 256, 2, "the name is too long"),
        ("proc/out", 3, "Cannot write"),
    ],
)
def test_impossible_outputs_are_refused(capfd: Capture, here: Path, place: str, code: int, says: str) -> None:
    name, *options = place.split()
    argv = ("convert", "--input", "in", "--output", name, *options)
    assert says in refused(capfd, here, *argv, code=code)


def test_a_read_only_file_system_is_refused_before_any_work(
    capfd: Capture, tmp_path: Path, tree: Path
) -> None:
    with mounted(tmp_path / "ro", "ro") as place:
        for output in (place, place / "a" / "b"):
            sentence = refused(capfd, tmp_path, "convert", "--input", tree, "--output", output, code=3)
            assert "Cannot write to" in sentence and "choose another --output" in sentence


def test_a_duplicate_key_is_found_across_splits_and_both_places_are_named(
    capfd: Capture, tmp_path: Path
) -> None:
    """One input names the splits, the other does not. Their keys are compared anyway."""
    for folder in ("first", "second"):
        put_files(tmp_path / folder, {f"train/ant/{i}.png": picture(i) for i in range(8)})
    rows = [f"train/ant/{i}.png,ant\n" for i in range(8)]
    (tmp_path / "second" / "rows.csv").write_text("".join(["image,label\n", *rows]))
    inputs = ("--input", tmp_path / "first", "--input", tmp_path / "second" / "rows.csv")
    done = run(capfd, "convert", *inputs, "--output", tmp_path / "out", "--splits", "test=1")
    assert done.code == 2 and "shardwright: Two images have the key 'train/ant/" in done.err
    assert all(text in done.err for text in ("(a=PATH)", f"{tmp_path}/first", f"{tmp_path}/second"))
    assert not (tmp_path / "out").exists()
    assert run(capfd, "plan", *inputs, "--splits", "test=1").err.endswith(done.err.splitlines()[-1] + "\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["plan"]["settings"].update(foo=1), "--plan_from: unknown setting 'foo'"),
        (lambda d: d["plan"]["settings"].update(seed=[]), "--seed takes one value"),
        (lambda d: d["plan"]["settings"].update(fit="x"), "--fit x: choose one of"),
        (lambda d: d["plan"]["shards"].update(train=0), "is damaged"),
        (lambda d: d["plan"]["shards"].update({"../x": 1}), "is damaged"),
        (lambda d: d["plan"].update(labels=["a", 1]), "is damaged"),
        (lambda d: d["plan"].update(labels=["a", "a"]), "is damaged"),
        (lambda d: d["plan"].update(split_bounds={"buckets": {"": "2" * 1024}}), "is damaged"),
        (lambda d: d.pop("plan"), "is damaged"),
        (lambda d: d["ledger"].update(quarantined="3"), "is damaged"),
        (lambda d: d["ledger"].update(splits={"train": 3}), "is damaged"),
        (lambda d: d["ledger"].pop("filtered"), "is damaged"),
        (lambda d: d["ledger"]["splits"]["train"].pop("written"), "is damaged"),
    ],
)
def test_wrong_plans_are_refused(
    capfd: Capture, tmp_path: Path, tree: Path, dataset: Path, change: Any, says: str
) -> None:
    plan = tmp_path / "plan.json"
    value = document(dataset)
    change(value)
    plan.write_text(json.dumps(value))
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--plan_from", plan)
    assert says in refused(capfd, tmp_path, *argv)


def test_images_of_unknown_classes_are_quarantined_and_replace_no_copy(
    capfd: Capture, tmp_path: Path
) -> None:
    put_files(tmp_path / "in", dict.fromkeys(["aaa/1.png", "bee/1.png", "bee/2.png"], picture(7)))
    (tmp_path / "names").write_text("cow\nbee\n")
    argv = ["convert", "--input", tmp_path / "in", "--output", tmp_path / "out", "--dedupe=exact"]
    argv += ["--class_names", tmp_path / "names", "--max_bad_fraction=1", "--verify=none"]
    assert run(capfd, *argv).code == 0
    found = outcomes(tmp_path / "out")
    assert found == {"aaa/1.png": "UNKNOWN_LABEL", "bee/1.png": "written", "bee/2.png": "bee/1.png"}
    assert check_books(tmp_path / "out")["aaa/1.png"]["stage"] == "build"
    assert document(tmp_path / "out")["plan"]["labels"] == ["cow", "bee"]


@pytest.mark.parametrize(
    ("option", "content", "says"),
    [
        ("--plan_from", b'{"a":\n[1,', "is not JSON (line 2, column 4)"),
        ("--plan_from", b"\xff", "is not JSON"),
        ("--plan_from", b"[" * 100_000, "is not JSON"),
        ("--plan_from", b"null", "is not a dataset.json"),
        ("--plan_from", b"{}", "is not a dataset.json"),
        ("--plan_from", b'{"format_version": 99}', "has format_version 99; this version"),
        ("--plan_from", b'{"format_version": 1}', "is damaged"),
        ("--class_names", b"", "the file names no class"),
        ("--class_names", b"ant\nant\n", "'ant' occurs twice"),
        ("--class_names", b"0:ant\n2:bee\n1:cow\n", "ids must begin with 0, grow from line to line"),
        ("--class_names", b"\xff\xfe", "is not UTF-8 text"),
        ("--class_names", None, "is a directory"),
        ("--job", b"0", "write one `setting: value` on each line"),
        ("--job", b"seed: 2020-13-45", "line 1, column 7: this is not YAML: this value cannot be read"),
        ("--job", b"seed: " + b"[" * 1000, "nested too deeply"),
        ("--job", b"input: 5", "input 5 does not exist"),
        ("--job", b"input: [a, [b]]", "write one path or a list of paths"),
        ("--job", b"quality: true", "is not a whole number"),
        ("--job", b"background: #ffffff", "background has no value; quote one that begins with #."),
        ("--job", b"class_names: [ant, bee]", "takes one value, not several"),
    ],
)
def test_wrong_files_are_refused(
    capfd: Capture, tmp_path: Path, tree: Path, option: str, content: bytes | None, says: str
) -> None:
    file = tmp_path / "file.yaml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    argv = ["convert", "--output", tmp_path / "out", option, file]
    if not (content or b"").startswith(b"input"):
        argv += ["--input", tree]
    assert says in refused(capfd, tmp_path, *argv)


NAMES = (
    b"a b", b" lead", b"x[1]", b"st*ar", b"q?", b"100%", b"%41", b"em\xf0\x9f\x98\x80ji", b"q'uo\"te",
    b"new\nline", b"cr\r", b"tab\t", b"\xff\xfe", b"caf\xe9", b"back\\slash", b"<script>", b"esc\x1b[31m",
    b"-dash", b"a!b", b"a:b", b"a,b", b"k=v", b"$HOME", b"~", b"#x", b"&amp;", b"L" * 200,
    "\u202ertl".encode(), "\u2028".encode(),
)  # fmt: skip


def test_every_kind_of_file_is_accounted_for(tmp_path: Path) -> None:
    tree = tmp_path / "in"
    images = {
        "ant/UP.JPG": picture(1, "JPEG"), "ant/noext": picture(2), "ant/photo.txt": picture(3),
        "ant/wrong.jpg": picture(4, "GIF"), "ant/deep/er/x.png": picture(5), "bee/1.Png": picture(6),
    }  # fmt: skip
    dotfiles = [".git/a.png", ".DS_Store", "ant/.ipynb_checkpoints/a.png", "ant/.hidden.png", "bee/._1.png"]
    others = {
        "README.md": b"hello", "bee/labels.csv": b"a,b\n", "bee/empty": b"", "bee/empty.png": b"",
        "bee/text.jpg": b"these are words", "stray.png": picture(8), "../elsewhere/1.png": picture(9),
    }  # fmt: skip
    put_files(tree, {**images, **dict.fromkeys(dotfiles, picture(7)), **others})
    (tree / "bee/folder.png").mkdir()
    os.mkfifo(tree / "bee/pipe.png")
    os.mkfifo(tree / "bee/pipe")
    (tree / "bee/link.png").symlink_to("1.Png")
    (tree / "bee/broken.png").symlink_to("nowhere.png")
    (tree / "bee/broken").symlink_to("nowhere")
    (tree / "bee/self.png").symlink_to("self.png")
    (tree / "bee/up").symlink_to("..")
    (tree / "linked").symlink_to(tmp_path / "elsewhere")
    (tree / "linked-twice").symlink_to("linked")
    expected = dict.fromkeys([*images, "linked-twice/1.png"], "written")
    expected |= dict.fromkeys(dotfiles, "dotfile")
    expected |= dict.fromkeys(["README.md", "bee/labels.csv", "bee/empty", "bee/broken"], "not_an_image")
    expected |= dict.fromkeys(["bee/pipe.png", "bee/pipe"], "special_file")
    expected |= dict.fromkeys(["bee/broken.png", "bee/self.png"], "UNREADABLE")
    expected |= {
        "bee/empty.png": "EMPTY_FILE", "bee/text.jpg": "NOT_AN_IMAGE",
        "stray.png": "UNKNOWN_LABEL", "bee/up": "symlink_loop",
        "bee/link.png": "bee/1.Png", "linked/1.png": "linked-twice/1.png",
    }  # fmt: skip
    output = tmp_path / "out"
    convert(input=tree, output=output, max_bad_fraction=1, dedupe="exact", verify="none")
    assert outcomes(output) == expected
    lines = [json.loads(line) for line in (output / "quarantine.jsonl").read_text().splitlines()]
    assert all(line["message"] and line["stage"] and line["uri"].startswith(str(tree)) for line in lines)


def test_folders_deeper_than_pythons_recursion_limit_are_read() -> None:
    # Outside the folder of the session, because pytest could not remove what a killed worker left there.
    deep = make_tree(Path(tempfile.mkdtemp()))
    folder = "ant/" + "d/" * 1200
    # Python's own functions for this exceed the recursion limit.
    subprocess.run(["mkdir", "-p", deep / folder], check=True)
    try:
        (deep / folder / "x.png").write_bytes(picture(99))
        assert listed(deep, "classification").entries()[f"{folder}x.png"].outcome == "written"
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)


def test_odd_names_of_images_and_in_the_paths_of_input_and_output_are_preserved(
    capfd: Capture, tmp_path: Path
) -> None:
    """In these paths, folders with names of all kinds lie one below the other."""
    place = os.fsdecode(os.path.join(os.fsencode(tmp_path), *NAMES))
    tree, output = f"{place}-in", Path(place)
    expected = {}
    for i, name in enumerate(NAMES):
        for suffix, data in ((b".png", picture(i)), (b".jpg", b"no image %d" % i)):
            path = os.path.join(os.fsencode(tree), name, name + suffix)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
            key = key_from_bytes(name + b"/" + name + suffix)
            expected[key] = "written" if suffix == b".png" else "NOT_AN_IMAGE"
    argv = ("convert", f"--input={tree}", f"--output={place}", "--resize=4", "--verify=none")
    done = run(capfd, *argv)
    assert (done.code, done.err.count("\n"), "Traceback" in done.err) == (1, 1, False), done
    for option in ("--resume", "--overwrite"):
        done = run(capfd, *argv, option, "--max_bad_fraction=1", "--dedupe=exact")
        assert (done.code, done.err) == (0, ""), done
    assert document(output)["name"] == printable(output.name)
    assert outcomes(output) == expected
    (tmp_path / "link").symlink_to(output)  # TensorFlow reads no file whose path is not UTF-8
    assert by_key(tmp_path / "link").keys() == {key for key, what in expected.items() if what == "written"}
    labels = document(output)["plan"]["labels"]
    assert labels == sorted((key_from_bytes(name) for name in NAMES), key=str.encode)
    assert (output / "labels.txt").read_bytes().count(b"\n") == len(NAMES)
    for argv in (
        ("validate", f"--dataset={place}"),
        ("inspect", f"--dataset={place}"),
        ("plan", f"--input={tree}", f"--plan_from={place}"),
    ):
        done = run(capfd, *argv)
        assert (done.code, done.err) == (0, ""), done


def test_names_like_options_short_names_of_runners_and_a_single_class_are_accepted(
    capfd: Capture, workplace: Path
) -> None:
    make_tree(workplace / "in", classes=["ant"])
    done = run(capfd, "convert", "--input=in", "--output=-o", "--runner=direct", "--verify=none")
    assert done.code == 0 and not done.err
    assert "warning: There is only one class, 'ant'" in done.out
    assert done.out.endswith("next: shardwright inspect ./-o\n")
    check_books(workplace / "-o")


def test_a_terminal_that_cannot_show_a_name_does_not_end_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    make_tree(tmp_path / "in", classes=["ünï", "\U0001f600"])
    assert main(["plan", "--input", str(tmp_path / "in")]) == 0
    terminal.seek(0)
    assert "\\U0001f600" in terminal.read()
