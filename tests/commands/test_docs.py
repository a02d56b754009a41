"""Every example in the documents runs, and their statements about files and codes are true."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from helpers.annotation_sets.coco import put_coco
from helpers.annotation_sets.formats import FORMATS
from helpers.annotation_sets.json_exports import put_label_studio
from helpers.listing import Photo
from helpers.repository import PHOTOS, ROOT

from shardwright.core.sources.source import SOURCES
from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.settings_values import setting_fields

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_ELSEWHERE = ("scheduling.md", "getting-started.md", "add-a-format.md")
#: Documents with examples that run here; test_docs_scheduling.py and tests/docs run those of the others.
TRIED = [path for path in DOCUMENTS if path.name not in _ELSEWHERE]
#: Commands that need more than this machine, and those that other tests cover.
ELSEWHERE = ("gs://", "s3://", "az://", "--runner=DataflowRunner", "convert --job ", "--help")


def commands(text: str) -> list[list[str]]:
    """Returns the indented or inline `shardwright ...` commands of a document."""
    joined = text.replace(" \\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.startswith("    ")]
    lines += [match.replace("\n", " ") for match in re.findall(r"`((?:shardwright|python) [^`]+)`", joined)]
    found = [line for line in lines if line.startswith(("shardwright ", "python -m shardwright."))]
    return [shlex.split(line, comments=True) for line in found if not any(word in line for word in ELSEWHERE)]


def with_one_worker(arguments: list[str]) -> list[str]:
    """Returns arguments that start one worker process at most: each imports Beam."""
    return [re.sub(r"(?<=--direct_num_workers=)\d+", "1", word) for word in arguments]


@pytest.fixture(scope="session")
def few_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photos of each class: enough for commands whose datasets no test reads."""
    folder = tmp_path_factory.mktemp("few") / "photos"
    for kind in PHOTOS.iterdir():
        (folder / kind.name).mkdir(parents=True)
        for photo in sorted(kind.iterdir())[:3]:
            shutil.copy2(photo, folder / kind.name)
    return folder


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("photos", "scans"):
        (tmp_path / name).symlink_to(PHOTOS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def use_photos(folder: Path, photos: Path) -> None:
    """Has the examples read other photos."""
    (folder / "photos").unlink()
    (folder / "photos").symlink_to(photos)


def furnish(folder: Path) -> None:
    """Creates the files that the examples of docs/sources.md read."""
    photos = (folder / "photos").resolve()
    names = sorted(path.relative_to(photos) for path in photos.rglob("*") if path.is_file())
    lines = [f"{path},{path.parent.name},{i}.5,a|b" for i, path in enumerate(names)]
    (folder / "rows.csv").write_text("\n".join(["file,kind,price,tags", *lines]))
    shutil.make_archive(str(folder / "photos"), "zip", photos)
    (folder / "val2017").symlink_to(photos)
    boxes = {str(path): [(1, 1, 1, 9, 9)] for path in names}
    put_coco(folder / "annotations" / "instances_val2017.json", boxes, ["thing"])
    (folder / "beans").mkdir()
    rows = [
        {"image": {"bytes": (photos / path).read_bytes(), "path": path.name}, "label": i % 2}
        for i, path in enumerate(names)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "beans" / "train-00000-of-00001.parquet")
    (folder / "media").symlink_to(photos)
    photo = Photo(names[0].name, (100, 100), (("thing", 1, 1, 90, 90),))
    put_label_studio(folder, [photo])
    for number, path in enumerate(names):
        place = folder / "img2dataset_output" / f"{number // 30:05d}" / f"{number:09d}{path.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / path, place)
        place.with_suffix(".json").write_text(json.dumps({"url": f"https://a.b/{path.name}", "width": 256}))
    assert cli.main(["convert", f"--input={photos}", f"--output={folder / 'old'}"]) == 0


def lay_out(folder: Path, sound_dataset: Path) -> None:
    """Creates the datasets for the examples of docs/validating.md."""
    shutil.copytree(sound_dataset, folder / "out")
    shutil.copytree(sound_dataset, folder / "old")
    options = ["--input=photos", "--output=new", f"--plan_from={folder / 'old'}", "--limit=60"]
    assert cli.main(["convert", *options]) == 0
    shutil.copytree(sound_dataset, folder / "damaged")
    shard = max((folder / "damaged").glob("train-*.tfrecord"), key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.name)
def test_the_commands_run(path: Path, workplace: Path, few_photos: Path, sound_dataset: Path) -> None:
    if path.name != "validating.md":  # it compares with a dataset of all photos
        use_photos(workplace, few_photos)
    if path.name in ("sources.md", "layouts.md"):
        furnish(workplace)
    if path.name == "converting.md":
        (workplace / "satellite" / "fields").mkdir(parents=True)
        bands = np.arange(20 * 30 * 13, dtype=np.uint16).reshape(20, 30, 13)
        file = workplace / "satellite" / "fields" / "1.tif"
        tifffile.imwrite(file, bands, photometric="minisblack", planarconfig="contig")
    if path.name == "validating.md":
        lay_out(workplace, sound_dataset)
    for name, content in re.findall(r"```yaml\n# (\S+)\n(.*?)```", path.read_text(), re.DOTALL):
        (workplace / name).write_text(content)
    for name, content in re.findall(r"```python title=\"(\S+)\"\n(.*?)```", path.read_text(), re.DOTALL):
        (workplace / name).write_text(content)
    for words in commands(path.read_text()):
        arguments = words[1:]
        if words[0] == "python":
            arguments = [words[2].rpartition(".")[2], *words[3:]]
        if arguments[0] not in cli.COMMANDS or len(arguments) == 1:
            continue
        if arguments[0] == "convert" and "--resume" not in arguments:
            arguments.append("--overwrite")
        assert cli.main(with_one_worker(arguments)) == 0, words


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.name)
def test_the_python_runs(path: Path, workplace: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    if blocks and '"out"' in blocks[0]:
        splits = "train=0.8,validation=0.1,test=0.1"
        assert (
            cli.main(["convert", "--input=photos", "--output=out", "--resize=224", f"--splits={splits}"]) == 0
        )
    for block in blocks:
        if "import torch" in block and not find_spec("torch"):
            continue  # it is larger than all others together
        names: dict[str, object] = {"__name__": "__main__"}
        exec(compile(block, str(path), "exec"), names)
        if "train" in names:
            images, labels = next(iter(names["train"]))  # type: ignore[call-overload]
            assert images.shape == (32, 224, 224, 3) and labels.shape == (32,)


def test_the_settings_named_in_documents_exist() -> None:
    text = "\n".join(path.read_text() for path in (DOCUMENTS[0], ROOT / "docs" / "converting.md"))
    known = {*setting_fields(), "job", "dataset", "contact_sheet", "help", "fail_on", "runner"}
    known |= {"project", "region", "temp_location", "setup_file", "direct_running_mode"}
    known |= {"direct_num_workers", "records", "against", "stuck_after", "json", "quiet", "log_format"}
    assert set(re.findall(r"--([a-z_]+)", text)) <= known


def test_the_example_of_a_source_works(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add-a-format.md").read_text(), re.DOTALL)
    module = ModuleType("shardwright.core.sources.text_list")
    exec(compile(block, "text_list.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(SOURCES, "text_list", "a list of paths and classes")  # type: ignore[arg-type]
    lines = [f"{path.relative_to(PHOTOS)} = {path.parent.name}\n" for path in PHOTOS.glob("*/*")]
    (workplace / "pictures").mkdir()
    for folder in PHOTOS.iterdir():
        (workplace / "pictures" / folder.name).symlink_to(folder)
    (workplace / "pictures" / "all.list").write_text("".join(lines))
    made = convert(input="pictures/all.list", output="listed", verify="full")
    assert made.dataset.ledger["written"] == len(lines) and len(made.dataset.labels) == 5
    assert made.run["detected_as"] == ["a list of paths and classes"]


@pytest.mark.slow
def test_the_settings_by_task_are_accepted(workplace: Path, few_photos: Path) -> None:
    use_photos(workplace, few_photos)
    rows = re.findall(
        r"^\| [^|]+ \| `(--[^`]+)`", (ROOT / "docs" / "converting.md").read_text(), re.MULTILINE
    )
    (workplace / "opt_out.txt").write_text("birds/nobody.jpg\n")
    skipped = ("--class_names", "--plan_from", "--job", "--overwrite", "--map")
    tried = 0
    for row in rows:
        if row.startswith(skipped):
            continue
        tried += 1
        assert cli.main(["plan", "--input=photos", *with_one_worker(shlex.split(row))]) == 0, row
    assert tried >= 9


def test_links_inside_the_documents_have_targets() -> None:
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / link).exists() or "://" in link, f"{path.name}: {link}"


_ROW = re.compile(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", re.MULTILINE)
_EXAMPLES = dict(_ROW.findall((ROOT / "docs" / "sources.md").read_text().partition("\n## ")[0]))


def test_every_source_has_an_example() -> None:
    assert _EXAMPLES.keys() == SOURCES.keys()


def _kinds(paths: list[str]) -> set[tuple[str, str]]:
    """Returns the folder and the extension of each path."""
    return {(str(PurePosixPath(path).parent), PurePosixPath(path).suffix) for path in paths}


@pytest.mark.parametrize("source", sorted({form.source for form in FORMATS.values()}))
def test_the_example_has_the_files_of_the_suite(tmp_path: Path, source: str) -> None:
    next(form for form in FORMATS.values() if form.source == source).put(tmp_path)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert _kinds(re.findall(r"`([^`]+)`", _EXAMPLES[source])) <= _kinds(files)
