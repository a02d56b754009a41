"""Jobs as Dataflow translates them: one graph, named steps, and references instead of images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.portability.common_urns import resource_hints
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.stager import Stager
from helpers.cloud import (
    BUCKET,
    DATAFLOW,
    IMAGE,
    IN_CONTAINER,
    Described,
    describe,
    objects,
    storage_emulator,
    upload,
)
from helpers.repository import EXAMPLES, PHOTOS, copy_photos

from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild

STEPS = [
    "AllFindings", "AssignShards", "BatchRefs", "BeginConversion", "CheckKeys", "CommitDataset",
    "CompareLedgers", "DedupeExact", "ForecastDataset", "ListSources", "NamePlannedShards", "NameSchema",
    "NameShardTasks", "RemoveCommit", "VerifyShards", "WritePlannedShards",
]  # fmt: skip
REBUILD_STEPS = [
    "AssignShards", "BatchRefs", "Begin", "BeginRebuild", "CarryPlan", "CheckKeys", "CommitVersion",
    "CompareWithPrevious", "FindReusableBuilds", "FinishRebuild", "ForecastDataset",
    "GateVersion", "ListSources", "NamePlannedShards", "PublishVersion",
    "VerifyVersion", "WhereChanged", "WritePlannedShards",
]  # fmt: skip
#: Names that Beam gives to its own steps inside ours.
BEAM_STEP = re.compile(
    r"FlatMap\(<lambda at core\.py:\d+>\)|Map\(decode\)"
    r"|ParDo\((CombineValuesDoFn|_ListPart|_CompareLedgers|_CompareBucket|_PairRenamed|_GlobalWindowsBatchingDoFn)\)"
    r"|FlatMap\((_check_shard|_read_ledger|compare)\)"
    r"|(Flat)?Map\((reify|restore)_metadata_default_window\)"
)
#: Types that may be grouped, reshuffled or used as side inputs; packed references are bytes.
CROSSING = {
    "bytes", "str", "int", "NoneType", "Forecast", "RecordSchema", "ShardTask", "ShardCheck", "ShardResult",
    "FindingSummary", "InputSplit", "Timestamp", "PaneInfo", "HeldLease", "bool",
    "PreviousState", "Compared", "Decision", "ReusableBuilds", "LedgerPair", "Changes",
    "RefSummary", "ShardTotals",
}  # fmt: skip
#: Steps whose element type Beam does not know; tests below check their actual data.
UNTYPED = {
    "CompareLedgers/GroupBySource",
    "GroupKeys",
    "VerifyShards/GroupByBucket",
    "RemoveCommit/RemoveDatasetJson side 0",
    "NamePlannedShards side 1",
    "CompareWithPrevious/Decide side 3",
    "GateVersion/Gate side 2",
    "ForecastDataset/MakeForecast side 0",
    "ForecastDataset/MakeForecast side 1",
    "ForecastDataset/MakeForecast side 2",
    "ForecastDataset/MakeForecast side 3",
    "VerifyVersion/CompareLedgers/GroupBySource",
    "VerifyVersion/VerifyShards/GroupByBucket",
}
#: Its rows and sums are those of `shardwright diff`.
UNTYPED_STEP = "GateVersion/CompareDatasets/"
SETTINGS = (f"--output=gs://{BUCKET}/out", "--resize=64", "--splits=train=0.8,test=0.2")
FULL = ("--dedupe=exact", "--verify=full")
MAX_BYTES = 20 * 10**6


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    # Beam lists the packages of this environment for the job, which takes two seconds.
    with (
        storage_emulator() as bucket,
        mock.patch.object(Stager, "_create_stage_submission_env_dependencies", return_value=[]),
    ):
        upload(bucket, PHOTOS, "photos", 5)
        yield bucket


def dry_run(*arguments: str, command: str = "convert") -> Described:
    return describe(command, *SETTINGS, *arguments, *DATAFLOW, *IN_CONTAINER, "--dry_run=True")


@pytest.fixture(scope="module")
def job(bucket: Any) -> Described:
    return dry_run(f"--input=gs://{BUCKET}/photos", "--dedupe=exact")


@pytest.fixture(scope="module")
def full_job(bucket: Any) -> Described:
    return dry_run(f"--input=gs://{BUCKET}/photos", f"--input=more=gs://{BUCKET}/photos", *FULL)


@pytest.fixture(scope="module", params=["fast", "full"])
def rebuild_job(request: pytest.FixtureRequest, bucket: Any) -> Described:
    verify = f"--verify={request.param}"
    return dry_run(f"--input=gs://{BUCKET}/photos", verify, command="rebuild")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["convert", "rebuild"])
def test_a_dry_run_says_so_and_writes_nothing(
    command: str, bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = objects(bucket)
    assert dry_run(f"--input=gs://{BUCKET}/photos", command=command).code == 0
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "--dry_run described the job" in err
    assert objects(bucket) == before


@pytest.mark.sampled(1)
def test_the_steps_have_readable_names(job: Described, full_job: Described, rebuild_job: Described) -> None:
    assert sorted(job.top) == STEPS
    assert sorted(rebuild_job.top) == REBUILD_STEPS
    assert set(full_job.top) - set(STEPS) == {"BucketKeys", "GroupKeys"}
    for described in (job, full_job, rebuild_job):
        names = [name for name in described.steps if not name.startswith("ref_AppliedPTransform")]
        assert len(names) > 40
        for part in {part for name in names for part in name.split("/")}:
            assert re.fullmatch(r"([A-Z][a-z0-9]*)+", part) or BEAM_STEP.fullmatch(part), part


@pytest.mark.parametrize("command", ["convert", "rebuild"])
def test_only_the_step_that_converts_asks_prime_for_memory(command: str, bucket: Any) -> None:
    prime = "--dataflow_service_options=enable_prime"
    for options, hints in (((), {}), ((prime,), {resource_hints.MIN_RAM_BYTES.urn: b"4000000000"})):
        described = dry_run(f"--input=gs://{BUCKET}/photos", *options, command=command)
        environments = described.pipeline.components.environments
        hinted = {
            name: dict(environments[step.environment_id].resource_hints)
            for name, step in described.steps.items()
            if step.environment_id and environments[step.environment_id].resource_hints
        }
        assert hinted == ({"WritePlannedShards/WriteShard": hints} if hints else {})


def test_each_job_is_one_graph_that_ends_with_its_last_step(
    job: Described, full_job: Described, rebuild_job: Described
) -> None:
    for described in (job, full_job, rebuild_job):
        last = "FinishRebuild" if described is rebuild_job else "CommitDataset/Commit"
        steps, makers = described.steps, {}
        for name, step in steps.items():
            if not step.subtransforms:
                makers.update(dict.fromkeys(step.outputs.values(), name))
        commit = steps[last]
        used = {collection for step in steps.values() for collection in step.inputs.values()}
        assert used.isdisjoint(commit.outputs.values()), "a step follows the last one"
        waiting, before = [last], set()
        while waiting:
            name = waiting.pop()
            if name not in before:
                before.add(name)
                waiting += [makers[collection] for collection in steps[name].inputs.values()]
        assert before == {name for name, step in steps.items() if step.outputs and not step.subtransforms}


def test_the_writer_waits_for_the_check_of_keys(job: Described) -> None:
    step = job.steps["NamePlannedShards"]
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    sides = {step.inputs[tag] for tag in payload.side_inputs}
    makers = {
        name
        for name, other in job.steps.items()
        if not other.subtransforms and sides & set(other.outputs.values())
    }
    assert makers == {"CheckKeys", "ForecastDataset/MakeForecast"}


def test_only_references_plans_and_results_cross_from_stage_to_stage(
    job: Described, full_job: Described, rebuild_job: Described
) -> None:
    found = job.boundaries | full_job.boundaries | rebuild_job.boundaries
    assert {"AssignShards/GroupByShard", "WritePlannedShards/WriteShard side 0"} <= set(found)
    for step, hint in found.items():
        if step not in UNTYPED and not step.startswith(UNTYPED_STEP):
            names = {name.rpartition(".")[2] for name in re.findall(r"<class '([^']+)'>", hint)}
            names |= {"Any"} if "Any" in hint else set()
            assert names <= CROSSING, f"{step}: {hint}"


@pytest.mark.slow
def test_the_description_does_not_grow_with_the_images(bucket: Any, tmp_path: Path) -> None:
    for number in range(300):
        bucket.blob(f"many/ant/{number:08d}.jpg").upload_from_string(b"x")
    bucket.blob("none/ant/1.jpg").upload_from_string(b"x")
    sizes = [len(dry_run(f"--input=gs://{BUCKET}/{name}").pipeline.SerializeToString())
             for name in ("many", "none")]  # fmt: skip
    assert abs(sizes[0] - sizes[1]) < 300  # less than a byte per image; the length of pickled times varies
    assert 10_000 < max(sizes) < MAX_BYTES / 50


@pytest.mark.sampled(1)
def test_the_description_of_a_rebuild_contains_no_content_of_versions(
    bucket: Any, rebuild_job: Described
) -> None:
    listing, record = {"shards": 10_000 * ["x"]}, {"format_version": 1}
    for name in ("latest.json", "versions/20260101T000000Z/dataset.json"):
        bucket.blob(f"out/{name}").upload_from_string(json.dumps({**listing, **record}))
    again = dry_run(f"--input=gs://{BUCKET}/photos", command="rebuild")
    for blob in bucket.client.list_blobs(bucket.name, prefix="out/"):
        blob.delete()
    assert again.code == 0 and sorted(again.top) == REBUILD_STEPS
    for described in (again, rebuild_job):
        assert len(described.pipeline.SerializeToString()) < MAX_BYTES / 50


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["convert", "rebuild"])
def test_class_names_do_not_fill_the_description(command: str, bucket: Any) -> None:
    names = "".join(f"class_{number:06d}\n" for number in range(20_000))
    bucket.blob("names.txt").upload_from_string(names.encode())
    options = (f"--input=gs://{BUCKET}/photos", f"--class_names=gs://{BUCKET}/names.txt", *FULL)
    described = dry_run(*options, command=command)
    # A dataset with the labels of ImageNet-21k: the forecast step and the dedupe step contain the names.
    assert len(described.pipeline.SerializeToString()) < MAX_BYTES / 10


def test_the_workers_get_the_image(job: Described) -> None:
    assert {item.container_image for item in job.environments()} == {IMAGE}
    for environment in job.pipeline.components.environments.values():
        assert not environment.dependencies, "the image has all that workers need"


def test_the_graph_is_the_same_every_time(bucket: Any, job: Described) -> None:
    again = dry_run(f"--input=gs://{BUCKET}/photos", "--dedupe=exact")
    assert sorted(again.steps) == sorted(job.steps)
    assert json.dumps(again.boundaries) == json.dumps(job.boundaries)


#: The first bytes of JPEG, PNG and WebP files.
MAGIC = re.compile(rb"\xff\xd8\xff[\xe0\xe1\xdb\xee]|\x89PNG\r\n\x1a\n|RIFF....WEBP", re.DOTALL)
PIECE = 32
SOURCES = [path.read_bytes() for path in sorted(EXAMPLES.rglob("*")) if path.is_file()]
#: Some bytes from the middle of each picture.
PIECES = [data[len(data) // 2 :][:PIECE] for data in SOURCES]


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """All data that the in-process runner passes from one stage to the next."""
    found: list[bytes] = []

    def noting(buffer: type, name: str) -> None:
        original = getattr(buffer, name)

        def append(self: Any, data: bytes) -> None:
            found.append(bytes(data))
            original(self, data)

        monkeypatch.setattr(buffer, name, append)

    noting(execution.ListBuffer, "append")
    noting(execution.GroupingBuffer, "append")
    noting(execution.WindowGroupingBuffer, "append")
    yield found


def images_in(crossed: list[bytes]) -> int:
    return sum(bool(MAGIC.search(data)) or any(piece in data for piece in PIECES) for data in crossed)


def test_the_recorder_detects_images_that_cross(crossed: list[bytes]) -> None:
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = pipeline | beam.Create(SOURCES[:3], reshuffle=False) | beam.Reshuffle()
    assert images_in(crossed) >= 1
    assert sum(map(len, crossed)) > sum(map(len, SOURCES[:3]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"resize": 64, "verify": "full"},
        {"dedupe": "exact", "split_by": "(.)", "compression": "gzip"},  # this keeps the original bytes
        {"resize": 32, "image_format": "raw", "verify": "none"},
    ],
    ids=["jpeg", "keep", "raw"],
)
def test_no_image_crosses_from_stage_to_stage(
    settings: dict[str, Any], crossed: list[bytes], tmp_path: Path
) -> None:
    places = {"input": str(EXAMPLES), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    made = convert(**places, **settings, shards=3, beam_options=options)
    assert sum(sum(counts.values()) for counts in made.dataset.class_counts.values()) == len(SOURCES)
    assert len(crossed) > 10
    assert images_in(crossed) == 0
    # References, the plan, one result per shard, and the lines of ledgers that are compared.
    assert sum(map(len, crossed)) < sum(map(len, SOURCES)) / 15


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["fast", "quality"])
def test_no_image_crosses_in_a_rebuild(verify: str, crossed: list[bytes], tmp_path: Path) -> None:
    source = copy_photos(tmp_path / "in", 6, EXAMPLES)
    images = sum(path.is_file() for path in source.rglob("*"))
    places = {"input": str(source), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    # The second one copies the records that it does not reuse as a whole shard.
    for kept in (images, images - 1):
        made = rebuild(**places, verify=verify, shards=3, beam_options=options)
        assert made.outcome["records"] == kept
        assert len(crossed) > 10
        assert images_in(crossed) == 0
        crossed.clear()
        next(source.glob("birds/*")).unlink()
    assert made.outcome["work"]["copied"]
