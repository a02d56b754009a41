"""The work that the suite saves in Beam and in reports does not change any result."""

from __future__ import annotations

import base64
import bz2
import os
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    WorkerOptions,
)
from apache_beam.runners.worker import bundle_processor, statesampler
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core, environments
from helpers import fast_beam
from helpers.hostile import document, make_tree

PLAIN = bool(os.environ.get("SHARDWRIGHT_PLAIN_BEAM"))
ROOT = Path(__file__).resolve().parents[2]
_CONVERT = """
import sys
sys.path[:0] = sys.argv[3:]
import conftest
from shardwright.pipelines.cli import main
sys.exit(main(["convert", "--input", sys.argv[1], "--output", sys.argv[2], "--splits=train=0.5,test=0.5"]))
"""
_STEPS: list[str] = []


def _note_step(value: int) -> int:
    _STEPS.append(statesampler.get_current_tracker().current_state().name_context.step_name)
    return value


def _add_one(value: int) -> int:
    return value + 1


class _Mixed(beam.DoFn):
    def process(self, element: int):
        if element:
            yield element
        return element


def test_beam_can_read_the_pickled_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = pickler.dumps(lambda value: value + 1)
    assert pickler.loads(encoded)(1) == 2
    monkeypatch.setattr(cloudpickle_pickler, "bz2", bz2)  # as in processes without these changes
    assert cloudpickle_pickler.loads(encoded)(20) == 21


@pytest.mark.parametrize(
    ("environment", "compressed"),
    [(environments.EmbeddedPythonEnvironment, False), (environments.EmbeddedPythonGrpcEnvironment, True)],
)
def test_only_functions_for_other_processes_are_compressed(environment: type, compressed: bool) -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1]) | "AddOne" >> beam.Map(lambda value: value + 1)
    described = pipeline.to_runner_api(default_environment=environment.default())
    (step,) = (step for step in described.components.transforms.values() if step.unique_name == "AddOne")
    payload = beam.portability.api.beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    encoded = payload.do_fn.payload
    assert base64.b64decode(encoded).startswith(b"BZh") == (compressed or PLAIN)
    assert list(pickler.loads(encoded)[0].process(1)) == [2]
    assert bz2.decompress(base64.b64decode(pickler.dumps(1)))


def test_a_replaced_function_is_not_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _add_one
    assert pickler.loads(pickler.dumps(real)) is real
    monkeypatch.setitem(globals(), "_add_one", lambda value: value + 2)
    assert pickler.loads(pickler.dumps(real))(1) == 2


def test_each_function_is_inspected_separately() -> None:
    def first(one: int, two: int = 2) -> int:
        return one + two

    def second(three: str = "3") -> str:
        return three

    for _ in range(2):
        assert core.get_function_args_defaults(first) == (["one", "two"], [2])
        assert core.get_function_args_defaults(second) == (["three"], ["3"])
        assert core._check_fn_use_yield_and_return(_Mixed().process)
        assert not core._check_fn_use_yield_and_return(first)
        assert beam.typehints.decorators.get_signature(first).return_annotation == "int"
        assert beam.typehints.decorators.get_signature(second).return_annotation == "str"
    core.get_function_args_defaults(first)[0].clear()
    assert core.get_function_args_defaults(first)[0] == ["one", "two"]


def test_a_bundle_that_cannot_be_loaded_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("this step cannot be loaded")

    monkeypatch.setattr(bundle_processor.BundleProcessor, "create_execution_tree", fail)
    with pytest.raises(Exception, match="this step cannot be loaded"), beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(_add_one)


def test_all_of_beams_options_exist() -> None:
    options = PipelineOptions(["--runner=Some", "--num_workers=3"]).get_all_options()
    assert options["runner"] == "Some" and options["num_workers"] == 3


def test_options_of_one_job_are_not_those_of_the_next() -> None:
    first = PipelineOptions(["--experiments=one"], job_name="first")
    first.view_as(DebugOptions).add_experiment("two")
    first.view_as(WorkerOptions).num_workers = 5
    second = PipelineOptions(["--experiments=three"])
    assert first.view_as(DebugOptions).experiments == ["one", "two"]
    assert second.view_as(DebugOptions).experiments == ["three"]
    assert PipelineOptions([]).view_as(DebugOptions).experiments is None
    assert first.view_as(GoogleCloudOptions).job_name == "first"
    assert second.view_as(GoogleCloudOptions).job_name is None
    assert second.view_as(WorkerOptions).num_workers is None


def test_steps_get_their_own_copy_of_their_arguments() -> None:
    values: list[int] = []
    step = beam.Map(lambda element, seen, *others, **named: (element, seen, others, named), values)
    values.append(1)
    with beam.Pipeline() as pipeline:
        assert_that(pipeline | beam.Create([7]) | step, equal_to([(7, [], (), {})]))


def test_the_running_step_is_still_known() -> None:
    _STEPS.clear()
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([1]) | "NoteTheStep" >> beam.Map(_note_step)
    assert _STEPS == ["NoteTheStep"]


@pytest.mark.slow
def test_a_dataset_has_the_same_bytes_with_unchanged_beam(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    made = []
    for plain in ("", "1"):
        output = tmp_path / f"out{plain}"
        argv = [sys.executable, "-c", _CONVERT, str(tree), str(output), str(ROOT / "tests")]
        environment = {**os.environ, "SHARDWRIGHT_PLAIN_BEAM": plain}
        subprocess.run(argv, env=environment, check=True, timeout=300)
        made.append(
            {name: document(output)[name] for name in ("fingerprint", "splits", "ledger", "versions")}
        )
    assert made[0] == made[1]


def test_the_environment_variable_leaves_beam_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDWRIGHT_PLAIN_BEAM", "1")
    before = core.get_function_args_defaults
    fast_beam.speed_up()
    assert core.get_function_args_defaults is before
