"""Statements of a dataset: wrong ones about its files are findings, and others need another version."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import make_tree
from helpers.memory import traced_memory
from helpers.resealing import read_ledger, write_ledger

from shardwright.core import storage
from shardwright.core.shards.finish import write_ledger as write_whole_ledger
from shardwright.core.shards.shard_plan import recipes_of
from shardwright.core.validation import dataset_json
from shardwright.core.validation.dataset_json import DatasetLedgers, check_quarantine
from shardwright.core.validation.directory import check_reports
from shardwright.core.validation.ledger import LedgerCheck, LedgerSummary, ShardTerms
from shardwright.core.validation.shard import check_shard
from shardwright.pipelines.convert import convert
from shardwright.pipelines.places import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks
from shardwright.schemas import ledger as ledger_lines
from shardwright.schemas.codes import CheckDepth
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import STATEMENTS_VERSION, Dataset, Shard, has_own_digest, with_digest
from shardwright.schemas.errors import EngineError
from shardwright.schemas.findings import Finding
from shardwright.schemas.layouts import CLASSIFICATION, DETECTION
from shardwright.schemas.ledger import LedgerLines, ShardResult, load_ledger
from shardwright.schemas.plan import Plan, ledger_file
from shardwright.schemas.sidecars import with_sidecars

DIGEST = "0" * 64


@pytest.fixture(scope="module")
def made(sound_dataset: Path) -> Dataset:
    return Dataset.from_bytes((sound_dataset / "dataset.json").read_bytes(), "it")


@pytest.fixture(scope="module")
def ledgers(sound_dataset: Path, made: Dataset) -> DatasetLedgers:
    """What the ledgers say; there are three shards of `train` and one of each other split."""
    recipes = dataset_json.recipes_of_dataset(made)
    assert recipes is not None
    return ledgers_of(sound_dataset, made, ShardTerms(recipes.shard, made.plan.settings["seed"], keeps=True))


def ledgers_of(directory: Path, made: Dataset, terms: ShardTerms | None = None) -> DatasetLedgers:
    by_shard: dict[str, LedgerSummary | None] = {}
    for place, shard in made.placed_shards():
        check = LedgerCheck((directory / ledger_file(*place)).read_bytes(), shard, terms)
        list(check.finish(sound=False))
        by_shard[shard.file] = check.summary
    return DatasetLedgers(by_shard, {}, False)


def parts_of(found: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(item.code.value, item.shard, item.message) for item in found]


def with_header(ledgers: DatasetLedgers, names: Iterable[str], **fields: Any) -> DatasetLedgers:
    """Returns ledgers of which some have other fields in their header."""
    by_shard = dict(ledgers.by_shard)
    for name in names:
        summary = by_shard[name]
        assert summary is not None
        by_shard[name] = summary._replace(header=replace(summary.header, **fields))
    return ledgers._replace(by_shard=by_shard)


@pytest.mark.parametrize("field", ["recipe", "plan_digest"])
def test_shards_of_other_settings_are_named(made: Dataset, ledgers: DatasetLedgers, field: str) -> None:
    first, *_ = ledgers.by_shard
    ((code, shard, message),) = parts_of(
        dataset_json.check_recipes(made, with_header(ledgers, [first], **{field: DIGEST}))
    )
    assert (code, shard) == ("LEDGER_MISMATCH", first)
    assert f"field {field!r} of its ledger's header" in message
    everywhere = with_header(ledgers, ledgers.by_shard, **{field: DIGEST})
    ((code, shard, message),) = parts_of(dataset_json.check_recipes(made, everywhere))
    assert (code, shard) == ("DATASET_MISMATCH", "dataset.json")
    assert message.endswith(f"{field!r} differs in all ledgers")


def test_settings_that_give_no_recipe_are_not_compared(made: Dataset, ledgers: DatasetLedgers) -> None:
    unknown = replace(made, plan=replace(made.plan, settings={"resize": "no size"}))
    assert dataset_json.recipes_of_dataset(unknown) is None
    assert not [*dataset_json.check_recipes(unknown, with_header(ledgers, ledgers.by_shard, recipe=DIGEST))]


def test_ledgers_of_no_shard_and_of_images_without_a_split_are_compared(
    copied: Path, made: Dataset, ledgers: DatasetLedgers
) -> None:
    extra = "_shards/train-00007-of-00008.jsonl.gz"
    found = parts_of(dataset_json.check_ledger_files(made, ledgers, [*made.files, extra]))
    assert found == [("LEDGER_MISMATCH", extra, "the file is not the ledger of a shard of dataset.json")]
    without = "_shards/none-00000-of-00001.jsonl.gz"
    header, *_ = read_ledger(copied, "train-00000-of-00003")
    write_ledger(copied, "none-00000-of-00001", [{**header, "sha256": ""}])
    data, files = (copied / without).read_bytes(), storage.list_files(str(copied))
    gathered = dataset_json.gather_ledgers(str(copied), [], files)
    assert list(gathered.without_shard) == [without]
    both = ledgers._replace(without_shard=gathered.without_shard)
    digest = hashlib.sha256(data).hexdigest()
    listed = replace(made, files={**made.files, without: digest})
    assert not [*dataset_json.check_ledger_files(listed, both, files)]
    wrong = replace(made, files={**made.files, without: DIGEST})
    ((code, file, message),) = parts_of(dataset_json.check_ledger_files(wrong, both, files))
    assert (code, file) == ("LEDGER_MISMATCH", without) and f"begins {digest[:12]}" in message
    (copied / without).write_bytes(b"no ledger")
    assert dataset_json.gather_ledgers(str(copied), [], files).without_shard == {}
    lost = parts_of(dataset_json.check_ledger_files(listed, ledgers, [*made.files]))
    assert lost == [("LEDGER_MISMATCH", without, "the ledger is missing; convert wrote it")]


def test_files_without_a_digest_are_named(made: Dataset) -> None:
    name = next(name for name in made.files if name.startswith("_index/"))
    less = replace(made, files={path: digest for path, digest in made.files.items() if path != name})
    message = f"field 'files' has no sha256 of {name}"
    assert parts_of(dataset_json.check_listed_files(less)) == [("DATASET_MISMATCH", "dataset.json", message)]


def test_files_for_other_tools_are_made_again_and_compared(copied: Path, made: Dataset) -> None:
    def found(dataset: Dataset) -> list[tuple[str, str, str]]:
        return parts_of(dataset_json.check_made_files(str(copied), dataset))

    less = {name: digest for name, digest in made.sidecars.items() if name != "labels.txt"}
    message = "field 'sidecars.labels.txt' is missing; convert wrote that file"
    assert found(replace(made, sidecars=less)) == [("DATASET_MISMATCH", "dataset.json", message)]
    lines = (copied / "labels.txt").read_bytes().split(b"\n")
    other = b"\n".join([*lines[:1], b"someone", *lines[2:]])
    wrong = replace(made, sidecars={**made.sidecars, "labels.txt": hashlib.sha256(other).hexdigest()})
    assert found(wrong) == []  # the file itself has another digest, which another check reports
    (copied / "labels.txt").write_bytes(other)
    message = "line 2 differs from what dataset.json gives"
    assert found(wrong) == [("SIDECAR_MISMATCH", "labels.txt", message)]
    (copied / "labels.txt").unlink()
    assert found(wrong) == []  # the check of the directory reports it


def test_changed_reports_are_found(copied: Path, made: Dataset) -> None:
    def found(dataset: Dataset = made) -> list[tuple[str, str]]:
        checked = check_reports(str(copied), dataset, storage.list_files(str(copied)))
        return [(item.shard, item.message) for item in checked]

    lost = replace(made, files={**made.files, "lost.jsonl": hashlib.sha256(b"a\n").hexdigest()})
    assert found(lost) == [("lost.jsonl", "the file is missing; salvage wrote it")]
    (copied / "lost.jsonl").write_bytes(b"a\n")
    assert found(lost) == []
    (copied / "lost.jsonl").write_bytes(b"b\n")
    ((file, message),) = found(lost)
    assert file == "lost.jsonl" and "sha256" in message
    for content in (b"[1", b"[]"):
        (copied / "run.json").write_bytes(content)
        assert found() == [("run.json", "the file is damaged")]


def test_a_document_that_contradicts_its_settings_is_found(sound_dataset: Path, made: Dataset) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_bytes())
    other = {**document, "layout": "tutorial", "first_label": 7}
    found = parts_of(dataset_json.check_document(other, made))
    assert any(code == "DATASET_MISMATCH" and "'layout'" in message for code, _, message in found)
    assert any("'first_label'" in message for _, _, message in found)
    assert [*dataset_json.check_document({**document, "features": 3}, made)]

    def messages(**settings: Any) -> list[str]:
        broken = {**document, "settings": settings, "plan": {**document["plan"], "settings": settings}}
        dataset = replace(made, plan=replace(made.plan, settings=settings))
        return [message for *_, message in parts_of(dataset_json.check_document(broken, dataset))]

    settings = document["plan"]["settings"]
    found = messages(**{**settings, "layout": "there is no such layout"})
    assert any("field 'settings' chooses no layout" in message for message in found)
    message = "field 'settings' chooses no layout (unknown setting 'souzce'; did you mean source?)"
    assert message in messages(**settings, souzce="auto")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, "it begins with a byte order mark"),
        (lambda data: data.replace(b"{", b'{"labels": ["fish"],', 1), "it names 'labels' twice"),
        (lambda data: data.decode().encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_a_document_that_readers_understand_differently_is_reported(
    copied: Path, change: Callable[[bytes], bytes], part: str
) -> None:
    data = change((copied / "dataset.json").read_bytes())
    dataset = Dataset.from_bytes(data, "it")
    found = parts_of(dataset_json.check_dataset_json(str(copied), data, dataset, []))
    message = f"{part}: other readers may fail or find other values"
    assert found[0] == ("DATASET_MISMATCH", "dataset.json", message)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with one shard of 120 small pictures."""
    root = tmp_path_factory.mktemp("many")
    convert(input=str(make_tree(root / "in", 120)), output=str(root / "out"), verify="none")
    return root / "out"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_records_before_damage_in_a_ledger_are_compared_with_it(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(ledger_lines, "BLOCK_BYTES", 2000)  # so that the ledger has several blocks
    shutil.copytree(many, tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    lines = read_ledger(tmp_path / "out", shard.stem)
    lines[3]["label"] = "wrong"
    write_ledger(tmp_path / "out", shard.stem, lines)
    (path,) = (tmp_path / "out" / "_shards").iterdir()
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    target = resolve_target(str(tmp_path / "out"))
    (task,) = list_tasks(target)
    messages = [finding.message for finding in check_shard(task, schema_of(target), CheckDepth.FAST).findings]
    assert any("its class is" in message for message in messages)
    assert any("it is damaged" in message for message in messages)


BAD = 4


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with bad images in both of its shards, if their hashes allow it."""
    root = tmp_path_factory.mktemp("bad")
    source = make_tree(root / "in", 6, ["birds"])
    for number in range(BAD):
        (source / "birds" / f"bad{number}.jpg").write_bytes(b"no image")
    convert(input=source, output=root / "out", shards=2, max_bad_fraction=0.9, verify="none")
    return root / "out"


@pytest.fixture
def dataset(bad: Path, tmp_path: Path) -> Path:
    """A copy of this dataset."""
    return Path(shutil.copytree(bad, tmp_path / "out"))


def findings(directory: Path) -> list[str]:
    """Returns the findings about the quarantine, given the ledgers at the time of their check."""
    made = Dataset.from_bytes((directory / "dataset.json").read_bytes(), "it")
    found = check_quarantine(str(directory), made, ledgers_of(directory, made))
    return [finding.message for finding in found]


def test_the_file_matches_the_ledgers(dataset: Path) -> None:
    path = dataset / "quarantine.jsonl"
    lines = path.read_bytes().splitlines(True)
    assert len(lines) == BAD and findings(dataset) == []
    path.write_bytes(b"".join(lines[1:]))
    assert findings(dataset) == ["1 quarantined image missing, such as 'birds/bad0.jpg'"]
    path.write_bytes(b"".join(lines).replace(b"bad3", b"bad9"))
    assert findings(dataset) == ["line 4 ('birds/bad9.jpg') does not match a quarantined image of a ledger"]
    path.write_bytes(b"".join(reversed(lines)))
    assert len(findings(dataset)) == 1 and "sha256" in findings(dataset)[0]
    path.unlink()
    assert findings(dataset) == ["the file is missing; convert wrote it"]


def test_a_ledger_that_changes_meanwhile_is_not_a_finding(dataset: Path) -> None:
    made = Dataset.from_bytes((dataset / "dataset.json").read_bytes(), "it")
    ledgers = ledgers_of(dataset, made)
    for place, _ in made.placed_shards():
        path = dataset / ledger_file(*place)
        header, entries = load_ledger(path.read_bytes())
        changed = [entry._replace(message="something else") for entry in entries]
        write_whole_ledger(str(dataset), ShardResult(header), LedgerLines(changed))
    with pytest.raises(EngineError, match="changed while the command ran"):
        list(check_quarantine(str(dataset), made, ledgers))


def test_endless_empty_lines_of_a_ledger_need_no_memory(many: Path) -> None:
    (shard,) = many.glob("*.tfrecord")
    header = read_ledger(many, shard.stem)[0] | {"counts": {"written": 10**9}}
    data = gzip.compress(json.dumps(header).encode() + b"\n" * 10_000_000, 1)
    with traced_memory() as peak:
        check = LedgerCheck(data, Shard(header["file"], 0, 0, header["sha256"]))
        ((_, message),) = check.finish(sound=False)
        assert peak() < 40_000_000
    assert "it is damaged" in message


#: Digest of the statements of `STATEMENTS_VERSION`. If this test fails, raise that version and update the
#: digest.
KNOWN = {3: "86e497030b3ea1f494556a3c7a0f8a930ed0034f14b22c31b860ba28f02da0d1"}


def statements_of(layout: str) -> Dataset:
    settings = replace(ConvertSettings(), layout=layout, resize="32x32", image_format="jpeg").identity()
    features = {"classification": CLASSIFICATION, "detection": DETECTION}[layout]
    return Dataset(
        name="pets",
        layout=layout,
        features=features.features,
        plan=Plan(("cat", "dog"), {"train": 1}, {"train": 10}, settings),
        versions={"shardwright": "0.1.0", "pillow": "12.0.0"},
        splits={"train": (Shard("train-00000-of-00001.tfrecord", 2, 10, "a" * 64),)},
        ledger={},
        class_counts={"train": {"cat": 1, "dog": 1}},
        first_label=features.first_label,
        formats={"train": {"jpg": 2}},
        statements_version=STATEMENTS_VERSION,
    )


def test_changed_statements_need_another_version() -> None:
    digest = hashlib.sha256()
    for layout in ("classification", "detection"):
        dataset, contents = with_sidecars(statements_of(layout))
        recipes = recipes_of(dataset.plan.settings, dataset.versions)
        for text in (*sorted(dataset.sidecars.values()), *recipes):
            digest.update(text.encode())
        assert sorted(contents) == sorted(dataset.sidecars)
    assert digest.hexdigest() == KNOWN[STATEMENTS_VERSION]


def test_a_document_contains_its_own_digest() -> None:
    document = statements_of("classification").as_json()
    assert list(document)[-1] == "digest" and has_own_digest(document)
    assert not has_own_digest({**document, "name": "dogs"})
    assert not has_own_digest({"name": "dogs"})
    assert with_digest(with_digest(document)) == document
