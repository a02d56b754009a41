"""How options are parsed: switches with and without a value, and options for Beam."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, SetupOptions
from apache_beam.transforms.environments import python_sdk_dependencies
from helpers.repository import PHOTOS

from shardwright.pipelines import cli, options
from shardwright.pipelines.run import as_shardwright_error
from shardwright.schemas.configuration.settings_values import settings_from
from shardwright.schemas.errors import UsageError

NO_LIST = "disable_logging_submission_environment"


def given(*argv: str) -> dict[str, object]:
    parser = options.make_parser("convert", "", "")
    options.add_settings(parser)
    namespace, rest = options.parse(parser, argv)
    assert rest == []
    return options.given_settings(namespace)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--overwrite", True),
        ("--overwrite=true", True),
        ("--overwrite=True", True),
        ("--overwrite=false", False),
        ("--overwrite=no", False),
    ],
)
def test_a_switch_may_have_a_value(argument: str, value: bool) -> None:
    assert settings_from(given("--input=x", argument)).overwrite is value
    assert settings_from(given(argument, "--input=x")).overwrite is value
    assert settings_from(given(argument.replace("overwrite", "strip-metadata"))).strip_metadata is value


@pytest.mark.parametrize("value", ["1", "", "maybe", "out/"])
def test_a_switch_accepts_no_other_value(value: str) -> None:
    with pytest.raises(UsageError, match="write true or false"):
        settings_from(given(f"--overwrite={value}"))


def test_a_switch_that_is_off_does_not_override_the_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("resume: true\n")
    settings = settings_from(given(f"--job={job}", "--overwrite=false"))
    assert (settings.resume, settings.overwrite) == (True, False)
    settings = settings_from(given(f"--job={job}", "--overwrite"))
    assert (settings.resume, settings.overwrite) == (False, True)


def test_the_main_session_is_not_staged_by_default() -> None:
    dataflow = ["--runner=DataflowRunner"]
    assert options.beam_options(dataflow, ()).view_as(SetupOptions).save_main_session is False
    asked = options.beam_options([*dataflow, "--save_main_session"], ())
    assert asked.view_as(SetupOptions).save_main_session is True


@pytest.mark.parametrize("runner", ["FlinkRunner", "PrismRunner", "PortableRunner", "SparkRunner", "flink"])
def test_portable_workers_get_no_list_of_the_launchers_packages(runner: str) -> None:
    made = options.beam_options([f"--runner={runner}", "--experiments=mine", "--parallelism=2"], ())
    assert made.view_as(DebugOptions).experiments == ["mine", NO_LIST]
    again = options.beam_options([f"--runner={runner}", f"--experiments={NO_LIST}"], ())
    assert again.view_as(DebugOptions).experiments == [NO_LIST]


def test_other_runners_keep_their_experiments() -> None:
    for runner in ("FnApiRunner", "DataflowRunner"):
        made = options.beam_options([f"--runner={runner}"], ())
        assert NO_LIST not in (made.view_as(DebugOptions).experiments or [])


def test_beam_stages_that_list_by_default() -> None:
    """A worker on another machine fails if it cannot fetch a staged file."""
    flink = ["--runner=FlinkRunner"]
    assert "submission_environment_dependencies" in str(python_sdk_dependencies(PipelineOptions(flink)))
    assert python_sdk_dependencies(options.beam_options(flink, ())) == []


def test_a_dry_run_writes_nothing_on_runners_without_dry_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["convert", f"--input={PHOTOS}", f"--output={tmp_path / 'out'}", "--dry_run=True"]
    assert cli.main(argv) == 0
    assert "nothing was converted" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_does_not_drop_the_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    with pytest.raises(UsageError, match="leave out one of the two"):
        options.beam_options(["--runner=DataflowRunner", "--dry_run=True", f"--dataflow_job_file={path}"], ())


def worker_python(folder: Path, exit_code: int) -> None:
    (folder / "python").write_text(f"#!/bin/sh\nexit {exit_code}\n")
    (folder / "python").chmod(0o755)


@pytest.mark.parametrize(
    ("engine", "exit_code", "says"),
    [
        (["--flink_master=[local]"], 1, "python has no pip, without which Beam's boot program ends"),
        (["--flink_master=[local]"], 0, ""),
        (["--flink_master=[local]"], None, "PATH has no `python`"),
        (["--flink_master=elsewhere:8081"], 1, ""),
        (["--flink_master=[local]", "--job_endpoint=localhost:8099"], 1, ""),
    ],
    ids=["no pip", "pip", "no python", "cluster", "own job server"],
)
def test_workers_without_pip_are_noticed_before_the_job_starts(
    engine: list[str], exit_code: int | None, says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if exit_code is not None:
        worker_python(tmp_path, exit_code)
    monkeypatch.setenv("PATH", str(tmp_path))
    options.beam_options(["--runner=FlinkRunner", "--environment_type=PROCESS", *engine], ())
    err = capsys.readouterr().err
    assert says in err and (err == "") == (says == "")
    options.beam_options(["--runner=FlinkRunner", "--environment_type=LOOPBACK", *engine], ())
    assert capsys.readouterr().err == ""


def test_a_worker_that_does_not_start_is_explained() -> None:
    error = as_shardwright_error(
        RuntimeError("java.lang.IllegalStateException: Process died with exit code 1")
    )
    assert "pip and shardwright" in error.message and "--resume" in error.message
