"""Parsing of command lines and their options, and output to a reader that stops early."""

from __future__ import annotations

import argparse
import io
import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, SetupOptions
from apache_beam.transforms.environments import python_sdk_dependencies
from helpers.repository import PHOTOS

from shardwright.pipelines import cli, options
from shardwright.pipelines.log import forgiving_streams
from shardwright.pipelines.run import as_shardwright_error
from shardwright.pipelines.tables import console, print_table
from shardwright.schemas.configuration.settings_values import settings_from
from shardwright.schemas.errors import UsageError

Capture = pytest.CaptureFixture[str]


def parsed(*argv: str) -> tuple[argparse.Namespace, list[str]]:
    """Parses like validate, report and salvage."""
    parser = options.make_parser("x", "", "")
    options.add_dataset(parser, "")
    parser.add_argument("--report", default="")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--verify_sources", nargs="?", const="true", default=None)
    options.add_common(parser)
    return options.parse(parser, argv)


@pytest.mark.parametrize(
    ("argv", "rest"),
    [
        (["--dataset", "o", "--runner", "DirectRunner"], ["--runner=DirectRunner"]),
        (["o", "--runner", "DirectRunner"], ["--runner=DirectRunner"]),
        (["--runner", "DirectRunner", "o"], ["--runner=DirectRunner"]),
        (["--runner=DirectRunner", "o"], ["--runner=DirectRunner"]),
        (["--num-workers", "3", "o"], ["--num_workers=3"]),
        (["--no_auth", "o"], ["--no_auth"]),
        (["--streaming", "o", "--fast"], ["--streaming"]),
        (["--flink_only_there", "3", "o"], ["--flink_only_there=3"]),
        (["--experiments", "a", "--experiments", "b", "o"], ["--experiments=a", "--experiments=b"]),
    ],
)
def test_options_of_beam_may_have_their_value_after_a_space(argv: list[str], rest: list[str]) -> None:
    namespace, unknown = parsed(*argv)
    assert options.dataset_of(namespace) == "o"
    assert unknown == rest


@pytest.mark.parametrize(
    ("argv", "report", "fast", "sources", "places"),
    [
        (["--report", "r", "o"], "r", False, None, ["o"]),
        (["o", "--report", "r", "p"], "r", False, None, ["o", "p"]),
        (["--fast", "o"], "", True, None, ["o"]),
        (["--verify-sources", "o"], "", False, "true", ["o"]),
        (["--verify_sources", "no", "o"], "", False, "no", ["o"]),
        (["--verify_sources", "--fast"], "", True, "true", []),
        (["--report", "-1", "--", "--odd"], "-1", False, None, ["--odd"]),
        (["--report", "-", "-"], "-", False, None, ["-"]),
    ],
)
def test_our_own_options_keep_their_values(
    argv: list[str], report: str, fast: bool, sources: str | None, places: list[str]
) -> None:
    namespace, rest = parsed(*argv)
    found = (namespace.report, namespace.fast, namespace.verify_sources, namespace.place, rest)
    assert found == (report, fast, sources, places, [])


@pytest.mark.parametrize("spelling", [["--runner", "DirectRunnr"], ["--runner=DirectRunnr"]])
@pytest.mark.parametrize(
    "command",
    [
        ["convert", "in", "out"],
        ["plan", "in"],
        ["rebuild", "other.yaml"],
        ["validate", "out"],
        ["salvage", "out"],
        ["report", "out"],
        ["diff", "old", "new"],
        ["init", "in", "out"],
    ],
)
def test_every_command_that_runs_beam_takes_both_spellings(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], spelling: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("other.yaml").write_text("input: in\noutput: out\n")
    assert cli.main([*command, *spelling]) == 2
    assert "--runner DirectRunnr: Beam has no such runner; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "places", "found"),
    [
        ({}, ["in", "out"], {"input": ["in"], "output": "out"}),
        ({}, ["in"], {"input": ["in"]}),
        ({"input": ["in"]}, ["out"], {"input": ["in"], "output": "out"}),
        ({"output": "out"}, ["in"], {"input": ["in"], "output": "out"}),
        ({"input": ["in"], "output": "out"}, [], {"input": ["in"], "output": "out"}),
    ],
)
def test_input_and_output_may_be_positional(
    given: dict[str, object], places: list[str], found: dict[str, object]
) -> None:
    assert options.own_settings(Namespace(**given, places=places)) == found


def test_names_that_a_shell_expanded_are_not_inputs() -> None:
    with pytest.raises(UsageError, match="Unexpected argument 'out'; name each of several inputs"):
        options.own_settings(Namespace(places=["photos/ant", "photos/bee", "out"]))


def test_help_accepts_a_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["help", "convert"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("usage: shardwright convert")
    assert cli.main(["help", "convrt"]) == 2
    assert "did you mean convert?" in capsys.readouterr().err
    assert cli.main(["help"]) == 0


def test_a_rebuild_without_a_job_file_explains_how_to_write_one(capsys: Capture) -> None:
    assert cli.main(["rebuild"]) == 2
    err = capsys.readouterr().err
    assert "--job" in err and "shardwright init" in err
    assert cli.main(["rebuild", "a.yaml", "b.yaml"]) == 2
    assert "Name one job file, not 2" in capsys.readouterr().err


class _Closed(io.TextIOWrapper):
    """A pipe without a reader."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        super().__init__(os.fdopen(writer, "wb"), encoding="utf-8", write_through=True)


def test_a_reader_that_stops_early_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed())
    monkeypatch.setattr(sys, "stderr", _Closed())
    before = sys.stdout
    assert cli.main(["--help"]) == 0
    assert cli.main(["layouts"]) == 0
    assert cli.main(["layouts", "--json"]) == 0
    # It reports this on stderr, which has no reader either.
    assert cli.main(["layouts", "no_such_layout"]) == 2
    assert sys.stdout is before
    sys.stdout.flush()


def test_a_broken_pipe_elsewhere_is_still_a_failure(capsys: Capture) -> None:
    from shardwright.pipelines.run import exit_code_of

    def command() -> int:
        raise BrokenPipeError(32, "Broken pipe")

    assert exit_code_of(command) == 3
    assert "Broken pipe" in capsys.readouterr().err


def test_forgiving_streams_keep_what_was_buffered_from_failing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = _Closed()
    monkeypatch.setattr(sys, "stdout", closed)
    with forgiving_streams():
        print("x" * 100_000)
        sys.stdout.buffer.write(b"y" * 100_000)
    closed.close()  # this flushes


def test_piped_output_is_never_wrapped() -> None:
    out = io.StringIO()
    words = " ".join(["word"] * 1000)
    console(out).print(f"  {words}")
    print_table(console(out), ("a", "b"), [[words, 1], ["x", 2]])
    lines = out.getvalue().splitlines()
    assert lines[0] == f"  {words}"
    assert sum(words in line for line in lines) == 2
    assert all(len(line) < len(words) + 40 for line in lines)  # and nothing is padded to a width
    assert all(line == line.rstrip() for line in lines)


def test_a_space_in_the_value_of_a_beam_option_starts_no_argument() -> None:
    parser = options.make_parser("shardwright convert", "Converts.", "")
    options.add_input_and_output(parser)
    namespace, rest = options.parse(parser, ["in", '--labels={"a": "b"}', "out"])
    assert namespace.places == ["in", "out"]
    assert rest == ['--labels={"a": "b"}']


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


def test_a_worker_that_does_not_start_is_explained() -> None:
    error = as_shardwright_error(
        RuntimeError("java.lang.IllegalStateException: Process died with exit code 1")
    )
    assert "pip and shardwright" in error.message and "--resume" in error.message
