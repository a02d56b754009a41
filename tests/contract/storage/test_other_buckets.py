"""Commands on Amazon S3 and Azure Blob Storage, which get their access from options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import document, picture, run, run_command, sentence_of
from helpers.packing import tree_members
from helpers.storage.buckets import KEY, S3, Bucket, Container, Owner

from shardwright.core import storage
from shardwright.core.report.index_page import write_index
from shardwright.loader import Records
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.version import LATEST_JSON

Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=["container", "s3"])
def owner(request: pytest.FixtureRequest) -> Owner:
    """A bucket of each of the two storages, with a small tree in `small/`."""
    made: Owner = request.getfixturevalue(request.param)
    return made


def test_convert_overwrite_and_validate_work(
    capfd: Capture, owner: Owner, small_local: Path, tmp_path: Path
) -> None:
    output, source = f"{owner.url}/out", ("--input", f"{owner.url}/small")
    argv = ("convert", *source, "--output", output, *owner.options)
    done = run(capfd, "plan", *source, *owner.options)
    assert done.code == 0, done
    owner.put_tree(small_local, "out/")
    owner.put("out/train.labels.txt", b"of a version before")
    assert "holds a dataset" in sentence_of(run(capfd, *argv), 2)
    done = run(capfd, *argv, "--shards=2", "--overwrite")
    assert done.code == 0, done
    assert owner.document("out")["fingerprint"] == document(small_local)["fingerprint"]
    # A lease that was given back stays, empty.
    assert set(owner.names("out/")) == tree_members(small_local).keys() | {"_work/lease.json"}
    assert KEY not in owner.get("out/run.json").decode()
    done = run(capfd, "validate", "--dataset", output, *owner.options)
    assert done.code == 0 and "Sound" in done.out, done
    owner.delete("out/dataset.json")
    owner.put("out/train-00001-of-00002.tfrecord", b"broken")
    assert run(capfd, *argv, "--shards=2", "--resume").code == 0
    assert json.loads(owner.get("out/_work/outcome.json"))["reused_shards"] == 1
    sheet = tmp_path / "sheet.png"
    done = run(capfd, "inspect", output, "--json", "--contact_sheet", sheet, *owner.options)
    assert done.code == 0 and json.loads(done.out)["fingerprint"] == document(small_local)["fingerprint"]
    assert sheet.stat().st_size
    FileSystems.set_options(PipelineOptions([*owner.options]))
    assert len(Records(output, "train")) == 12


@pytest.mark.sampled(1)
def test_rebuilds_publish_versions(capfd: Capture, owner: Owner) -> None:
    settings = {
        "input": f"{owner.url}/small", "output": f"{owner.url}/out", "shards": 3,
        "beam_options": [*owner.options],
    }  # fmt: skip
    places = ("--input", settings["input"], "--output", settings["output"])
    done = run(capfd, "rebuild", *places, "--shards=3", *owner.options)
    assert done.code == 0, done
    pointer = owner.get(f"out/{LATEST_JSON}")
    assert not rebuild(**settings).changed and owner.get(f"out/{LATEST_JSON}") == pointer
    owner.put("small/ant/new.png", picture(200))
    work = rebuild(**settings).outcome["work"]
    assert work == {
        "shards": 3, "reused_shards": 2, "copied": work["copied"], "converted": 1, "quarantined": 0
    }  # fmt: skip
    assert json.loads(owner.get(f"out/{LATEST_JSON}"))["previous"] == json.loads(pointer)["version"]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("place", ["bucket", "container", "s3"])
@pytest.mark.parametrize(
    "argv",
    [
        ("convert", "--input", "{url}/in", "--output", "{tmp}/out"),
        ("convert", "--input", "{url}", "--output", "{tmp}/out"),
        ("convert", "--input", "{tree}", "--output", "{url}/out"),
        ("convert", "--input", "{tree}", "--output", "{url}/out", "--overwrite"),
        ("convert", "--input", "{tree}", "--output", "{url}/out", "--resume"),
        ("plan", "--job", "{url}/job.yaml"),
        ("validate", "--dataset", "{url}/out"),
        ("validate", "--dataset", "{url}/out/*.tfrecord"),
        ("inspect", "{url}/out"),
    ],
)
def test_a_missing_bucket_is_reported(
    capfd: Capture, request: pytest.FixtureRequest, tree: Path, tmp_path: Path, place: str,
    argv: tuple[str, ...],
) -> None:  # fmt: skip
    owner: Owner = request.getfixturevalue(place)
    url = f"{owner.url.partition('://')[0]}://no-such-bucket"
    done = run(capfd, *(part.format(url=url, tmp=tmp_path, tree=tree) for part in argv), *owner.options)
    sentence = sentence_of(done, 3)
    kind = "container" if place == "container" else "bucket"
    assert f"there is no {kind} no-such-bucket; check its name or make it first." in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "server"), [(S3, "s3_server"), (Container, "azurite_server")])
def test_objects_are_copied_to_another_bucket(
    request: pytest.FixtureRequest, kind: type[S3 | Container], server: str
) -> None:
    one, other = (kind(request.getfixturevalue(server)) for _ in range(2))
    FileSystems.set_options(PipelineOptions([*one.options]))
    one.put("a", b"1")
    storage.link_files(one.url, other.url, ["a"])
    assert other.get("a") == b"1"


def test_a_browser_opens_the_pages_of_a_bucket(
    bucket: Bucket, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", FileSystems._pipeline_options)
    FileSystems.set_options(PipelineOptions([*s3.options]))
    for one in (bucket, s3):
        write_index(f"{one.url}/pets")
        storage.write_bytes(f"{one.url}/pets/diff.json", b"{}")
        assert one.kind_of("pets/index.html") == "text/html"
        assert one.kind_of("pets/diff.json") == "application/json"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bucket", "container", "s3"])
def test_the_installed_command_works_with_worker_processes(
    request: pytest.FixtureRequest, tree: Path, small_local: Path, place: str
) -> None:
    owner: Owner = request.getfixturevalue(place)
    owner.put_tree(tree, "small/")
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    places = ("--input", f"{owner.url}/small", "--output", f"{owner.url}/out")
    done = run_command("convert", *places, "--shards=2", *owner.options, *workers)
    assert done.code == 0, done
    assert owner.document("out")["fingerprint"] == document(small_local)["fingerprint"]
