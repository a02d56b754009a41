"""Every example in the documents runs, alone or in the order of its page; statements about files are true."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tarfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from helpers.annotation_sets.coco import put_coco
from helpers.annotation_sets.formats import FORMATS
from helpers.annotation_sets.json_exports import put_label_studio
from helpers.fewer_imports import late
from helpers.listing import Photo
from helpers.pictures import tiff_of
from helpers.repository import PHOTOS, ROOT, copy_photos
from helpers.tfrecords import write as write_tfrecords
from PIL import Image

from shardwright.pipelines import cli
from shardwright.pipelines.job_file import read_job
from shardwright.schemas.configuration.kinds import SOURCES
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS

DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
#: Pages whose examples run in their order.
WALKTHROUGHS = [
    "getting-started.md",
    "scheduling.md",
    *sorted(f"coming-from/{path.name}" for path in (DOCS / "coming-from").iterdir()),
]
#: Documents whose examples do not depend on each other.
TRIED = [path for path in DOCUMENTS if path.name not in (*WALKTHROUGHS, "add-a-format.md")]
#: Commands that need more than this machine, and those that other tests cover.
ELSEWHERE = ("gs://", "s3://", "az://", "--runner=DataflowRunner", "convert --job ", "--help")


def commands(text: str) -> list[list[str]]:
    """Returns the indented or inline `shardwright ...` commands of a document."""
    joined = text.replace(" \\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.startswith("    shardwright ")]
    lines += [match.replace("\n", " ") for match in re.findall(r"`(shardwright [^`]+)`", joined)]
    return [shlex.split(line, comments=True) for line in lines if not any(word in line for word in ELSEWHERE)]


@pytest.fixture(scope="session")
def few_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few photos of each class: enough for commands whose datasets no test reads."""
    return copy_photos(tmp_path_factory.mktemp("few") / "photos", 8)


def link_photos(folder: Path, photos: Path) -> None:
    """Puts photos where the examples read them."""
    for name in ("photos", "scans"):
        (folder / name).symlink_to(photos)


def put_downloads(folder: Path, photos: list[Path]) -> list[dict[str, Any]]:
    """Writes what img2dataset writes as files, and returns the columns of each image."""
    folder.mkdir(parents=True)
    rows = []
    for number, path in enumerate(photos):
        file = folder / f"{number:09d}.jpg"
        with Image.open(path) as image:
            image.convert("RGB").resize((256, 256)).save(file)
            sizes = {"width": 256, "height": 256, "original_width": image.width}
        texts = {"url": f"https://a.b/{path.name}", "key": file.stem, "status": "success"}
        file.with_suffix(".json").write_text(json.dumps({**texts, **sizes}))
        rows.append({"jpg": file.read_bytes(), **texts, **sizes})
    return rows


def furnish(folder: Path, sound_dataset: Path) -> None:
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
    put_downloads(folder / "img2dataset_output" / "00000", [photos / path for path in names])
    shutil.copytree(sound_dataset, folder / "old")


def lay_out(folder: Path, sound_dataset: Path) -> None:
    """Creates the datasets for the examples of docs/validating.md."""
    shutil.copytree(sound_dataset, folder / "out")
    shutil.copytree(sound_dataset, folder / "old")
    options = ["--input=photos", "--output=new", "--plan_from=old", "--limit=60", "--verify=none"]
    assert cli.main(["convert", *options]) == 0
    shutil.copytree(sound_dataset, folder / "damaged")
    shard = max((folder / "damaged").glob("train-*.tfrecord"), key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.name)
def test_the_examples_run(path: Path, workplace: Path, few_photos: Path, sound_dataset: Path) -> None:
    page = path.read_text()
    needs_all = path.name in ("README.md", "training.md", "validating.md")  # or compares them
    link_photos(workplace, PHOTOS if needs_all else few_photos)
    if path.name in ("sources.md", "layouts.md"):
        furnish(workplace, sound_dataset)
    if path.name == "converting.md":
        (workplace / "satellite" / "fields").mkdir(parents=True)
        bands = np.arange(20 * 30 * 13, dtype=np.uint16).reshape(20, 30, 13)
        (workplace / "satellite" / "fields" / "1.tif").write_bytes(tiff_of(bands, planarconfig="contig"))
    if path.name == "validating.md":
        lay_out(workplace, sound_dataset)
    for title in (r"yaml\n# (\S+)", r'python title="(\S+)"'):
        for name, content in re.findall(rf"```{title}\n(.*?)```", page, re.DOTALL):
            (workplace / name).write_text(content)
    if path.name != "training.md":  # where commands write what Python reads
        run_blocks(path)
    for words in commands(page):
        arguments = words[1:]
        if arguments[0] not in cli.COMMANDS or len(arguments) == 1:
            continue
        if arguments[0] == "convert" and "--resume" not in arguments:
            arguments += ["--overwrite", "--verify=none"]
        assert cli.main(arguments) == 0, words
    if path.name == "training.md":
        run_blocks(path)


def run_blocks(path: Path) -> None:
    """Runs the blocks of Python of a document, each alone."""
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        if "import torch" in block and not find_spec("torch"):
            continue  # it is larger than all others together
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(block, path.name, "exec"), names)
        if "train" in names:
            images, labels = next(iter(names["train"]))
            assert images.shape == (32, 224, 224, 3) and labels.shape == (32,)


def test_the_settings_named_in_documents_exist() -> None:
    text = "\n".join(path.read_text() for path in (DOCUMENTS[0], DOCS / "converting.md"))
    known = {*CONVERT_SETTINGS, "job", "dataset", "contact_sheet", "help", "fail_on", "runner"}
    known |= {"project", "region", "temp_location", "setup_file", "direct_running_mode"}
    known |= {"direct_num_workers", "records", "against", "stuck_after", "json", "quiet", "log_format"}
    assert set(re.findall(r"--([a-z_]+)", text)) <= known


def test_the_example_of_a_source_is_that_of_the_example_package() -> None:
    """It is installed and used by other tests."""
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "add-a-format.md").read_text(), re.DOTALL)
    module = (ROOT / "examples" / "plugin" / "acme_images" / "text_list.py").read_text()
    shown, used = (
        sorted(line for line in text.splitlines() if line and not line.lstrip().startswith(("#", '"""')))
        for text in (block, module)
    )
    assert shown == used


@pytest.mark.slow
def test_the_settings_by_task_are_accepted(workplace: Path, few_photos: Path) -> None:
    link_photos(workplace, few_photos)
    rows = re.findall(r"^\| [^|]+ \| `(--[^`]+)`", (DOCS / "converting.md").read_text(), re.MULTILINE)
    (workplace / "opt_out.txt").write_text("birds/nobody.jpg\n")
    skipped = ("--class_names", "--plan_from", "--job", "--overwrite", "--map")
    tried = 0
    for row in rows:
        if row.startswith(skipped):
            continue
        tried += 1
        assert cli.main(["plan", "--input=photos", *shlex.split(row)]) == 0, row
    assert tried >= 9


def test_links_inside_the_documents_have_targets() -> None:
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / link).exists() or "://" in link, f"{path.name}: {link}"


_ROW = re.compile(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", re.MULTILINE)
_EXAMPLES = dict(_ROW.findall((DOCS / "sources.md").read_text().partition("\n## ")[0]))


def test_every_source_has_an_example() -> None:
    assert _EXAMPLES.keys() == set(SOURCES)


def _kinds(paths: list[str]) -> set[tuple[str, str]]:
    """Returns the folder and the extension of each path."""
    return {(str(PurePosixPath(path).parent), PurePosixPath(path).suffix) for path in paths}


@pytest.mark.parametrize("source", sorted({form.source for form in FORMATS.values()}))
def test_the_example_has_the_files_of_the_suite(tmp_path: Path, source: str) -> None:
    next(form for form in FORMATS.values() if form.source == source).put(tmp_path)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert _kinds(re.findall(r"`([^`]+)`", _EXAMPLES[source])) <= _kinds(files)


TEXT = (DOCS / "scheduling.md").read_text()
BLOCKS = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


def test_the_parts_of_job_files_are_valid(tmp_path: Path) -> None:
    for name in ("gates.yaml", "hooks.yaml"):
        (tmp_path / name).write_text(f"input: photos\noutput: pets\n{BLOCKS[name]}")
        job = read_job(str(tmp_path / name))
        assert job.hooks or job.gates.max_count_drop == 0.1


def test_the_named_files_exist() -> None:
    for path in re.findall(r"deploy/[\w/.-]+", TEXT):
        assert (ROOT / path).exists(), path


#: A block of Python, or an indented command with the exit code that its comment tells.
STEP = re.compile(
    r"```python\n(?P<python>.*?)```"
    r"|^ {4}(?P<command>(?:shardwright|cp) [^#\n]+)(?:#[^\n]*?(?:exit code (?P<code>\d))?)?$",
    re.DOTALL | re.MULTILINE,
)


def write_by_split(folder: Path) -> None:
    """Writes what TFRecorder and ImageFolder read: folders of splits and classes, and a CSV file."""
    rows = ["split,image_uri,label"]
    for number, path in enumerate(sorted(PHOTOS.glob("*/*"))):
        split = {8: "validation", 9: "test"}.get(number % 10, "train")
        place = folder / "photos_by_split" / split / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        rows.append(f"{split.upper()},photos/{path.relative_to(PHOTOS)},{path.parent.name}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")


def write_downloads(folder: Path) -> None:
    """Writes what img2dataset writes as files, as a WebDataset and as TFRecords."""
    files = folder / "output_folder" / "00000"
    rows = put_downloads(files, sorted(PHOTOS.glob("*/*")))
    write_tfrecords(folder / "tfrecords" / "00000.tfrecord", rows)
    (folder / "tars").mkdir()
    with tarfile.open(folder / "tars" / "00000.tar", "w") as tar:
        for file in sorted(files.iterdir()):
            tar.add(file, file.name)


def check_walkthrough(page: str, tried: list[str], names: dict[str, Any], output: str) -> None:
    """Checks what a page says of the commands that it names."""
    if page == "getting-started.md":  # only the shard with the new image was written
        newest = max(Path("garden/versions").glob("*Z"))
        work = json.loads((newest / "version.json").read_text())["work"]
        assert (work["shards"], work["reused_shards"], work["converted"]) == (2, 1, 1)
        assert names["model"].optimizer.iterations == 2 * int(names["train"].cardinality())
    if page == "scheduling.md":
        assert {"init", "rebuild", "versions", "diff", "report", "publish", "rollback"} <= set(tried)
        assert "nothing changed" in output
        written = Path("pets/metrics.prom").read_text()
        assert 'outcome="refused"' in written
        (group,) = yaml.safe_load(BLOCKS["alerts.yaml"])["groups"]
        assert len(group["rules"]) == 2
        for rule in group["rules"]:
            (name,) = re.findall(r"shardwright_\w+", rule["expr"])
            assert f"\n{name}{{dataset=" in f"\n{written}", rule
            assert "$labels.dataset" in rule["annotations"]["summary"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", WALKTHROUGHS)
def test_a_walkthrough_runs(page: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands end as the page states; VERSION is the newest version."""
    # Pages change their photos, and the first one copies them.
    shutil.copytree(PHOTOS, workplace / ("examples/photos" if page == "getting-started.md" else "photos"))
    if page == "coming-from/img2dataset.md":
        write_downloads(workplace)
    write_by_split(workplace)
    names: dict[str, Any] = {"__name__": "__main__"}
    skipped, tried, output = [], [], ""
    for step in STEP.finditer((DOCS / page).read_text().replace(" \\\n", " ")):
        if step["python"]:
            imported = re.findall(r"^(?:import|from) (\w+)", step["python"], re.MULTILINE)
            if all(find_spec(name) for name in imported):
                exec(compile(step["python"], page, "exec"), names)
            else:
                skipped.append(step["python"])
        elif step["command"].startswith("cp "):
            subprocess.run(shlex.split(step["command"]), check=True)
        else:
            newest = max((path.name for path in Path("pets/versions").glob("*Z")), default="")
            words = shlex.split(step["command"].replace("VERSION", newest))[1:]
            tried.append(words[0])
            code = cli.main(words)
            captured = capsys.readouterr()
            assert code == int(step["code"] or 0), (words, captured.err)
            output += captured.out
            if page == "getting-started.md" and tried in (["plan"], ["plan", "convert"]):
                assert "warning" not in captured.out, "the first example is one that works"
    assert tried
    assert len(skipped) == (page == "coming-from/tfrecorder.md")
    check_walkthrough(page, tried, names, output)


nbformat = late("nbformat")

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def test_the_notebook_is_stored_without_results() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert NOTEBOOK.stat().st_size < 20_000


@pytest.mark.slow  # the pages of docs/ run the same commands
def test_the_cells_convert_look_train_and_rebuild(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "photos").symlink_to(PHOTOS)
    photos = sorted(PHOTOS.rglob("*"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(nbformat.read(NOTEBOOK, as_version=4).cells):
        if cell.cell_type == "code":
            exec(compile(cell.source, f"cell {number}", "exec"), names)
    output = capsys.readouterr().out
    assert "sound: True" in output
    assert "'shards': 2" in output and "'converted': 2" in output and "'added': 2" in output
    losses = re.search(r"loss: (.*)", output)
    assert losses is not None
    first, *_, last = map(float, losses[1].split())
    assert last < first
    assert names["sheet"].getbbox() == (0, 0, 576, 192)
    assert sorted(PHOTOS.rglob("*")) == photos
    assert not names["work"].exists()
