"""The package for programs: names, results, errors in the words of Python, steps, and notebooks."""

from __future__ import annotations

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils import interactive_utils
from helpers.fewer_imports import late
from helpers.hostile import make_tree
from helpers.repository import PHOTOS, ROOT, ran
from helpers.tensorflow_records import read_records
from PIL import Image

import shardwright
from shardwright import loader, schemas, transforms
from shardwright.pipelines.convert import convert
from shardwright.pipelines.python_calls import called_from_python, in_python_words
from shardwright.schemas import errors, missing_packages
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import BuildExamples, DecodeAndResize, ReadImages


@pytest.mark.parametrize("module", [shardwright, loader, transforms], ids=lambda module: module.__name__)
def test_every_public_name_exists(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names) and set(names) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None, name


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shardwright' has no attribute 'convrt'"):
        _ = shardwright.convrt
    assert shardwright.__version__ == schemas.__version__


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = ran(sys.executable, "-m", "shardwright", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"shardwright {shardwright.__version__}\n")


def test_all_functions_take_paths_and_results_show_themselves(tmp_path: Path) -> None:
    (make_tree(tmp_path / "in") / "ant" / "empty.jpg").touch()
    made = shardwright.convert(input=tmp_path / "in", output=tmp_path / "<b>out", max_bad_fraction=1)
    assert repr(made).startswith(f"<{tmp_path}/<b>out: ") and f"(train: {made.records:,})" in repr(made)
    page = made._repr_html_()
    assert "&lt;b&gt;out" in page and "<b>" not in page and page.count("<tr>") == 3
    assert "quarantined: 1 EMPTY_FILE" in page
    out = Path(made.path)
    sheet = tmp_path / "sheet.png"
    assert shardwright.inspect(out, contact_sheet=sheet)["splits"]["train"]["records"] == made.records
    assert sheet.exists()
    assert shardwright.validate(out, mode="fast", report=tmp_path / "findings.json").passed
    assert shardwright.diff(out, out, report=tmp_path / "diff.json").drift
    assert shardwright.salvage(out, tmp_path / "saved").dataset.all_records == made.records
    assert shardwright.plan(input=tmp_path / "in", plan_from=out / "dataset.json")
    assert shardwright.open_dataset(out) == made.dataset and shardwright.pin(out) == str(out)
    records = shardwright.Records(out, split="train")
    assert len(records) == made.records > 0 and made.splits == {"train": made.records}
    assert made.labels == records.labels and shardwright.select(out)


def test_the_dataset_has_one_name_in_all_functions() -> None:
    names = ("Records", "inspect", "load", "open_dataset", "pin", "salvage", "select", "validate")
    first = {next(iter(inspect.signature(getattr(shardwright, name)).parameters)) for name in names}
    assert first == {"dataset"}


tf = late("tensorflow")


def test_the_steps_compose_with_the_stock_writer_and_real_messages(tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    broken = tmp_path / "birds" / "broken.jpg"
    broken.write_bytes((PHOTOS / "birds" / "owl.jpg").read_bytes()[:900])
    paths = [str(path) for path in sorted((PHOTOS / "birds").iterdir())]

    def check(quarantined: list) -> None:
        (entry,) = quarantined
        assert (entry.uri, entry.reason) == (str(broken), QuarantineReason.TRUNCATED)

    settings = {"resize": 48, "fit": "pad", "image_format": "png"}
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        examples, quarantined = (
            pipeline
            | beam.Create([*paths, str(broken)])
            | ReadImages(**settings)
            | DecodeAndResize(**settings)
            | BuildExamples(labels=["birds", "fruit"], as_proto=True, **settings)
        )
        _ = examples | beam.io.WriteToTFRecord(
            str(tmp_path / "out"), coder=beam.coders.ProtoCoder(tf.train.Example), num_shards=2
        )
        assert_that(quarantined, check)
    names = set()
    for record in read_records(sorted(tmp_path.glob("out-*"))):
        feature = tf.train.Example.FromString(record).features.feature
        names.add(feature["image/filename"].bytes_list.value[0].decode())
        assert tf.io.decode_png(feature["image/encoded"].bytes_list.value[0]).shape == (48, 48, 3)
        assert feature["image/class/label"].int64_list.value == [0]
    assert len(names) == len(paths)


def test_the_steps_name_the_images_that_settings_and_references_leave_out(tmp_path: Path) -> None:
    expected = {
        "small.png": (Outcome.FILTERED, FilterReason.MIN_SIDE, Stage.DECODE),
        "photo.jpg": (Outcome.FILTERED, FilterReason.SKIPPED_FORMAT, Stage.DECODE),
        "night.png": (Outcome.FILTERED, FilterReason.DARK, Stage.ENCODE),
        "other.png": (Outcome.QUARANTINED, QuarantineReason.CHECKSUM_MISMATCH, Stage.READ),
        "draft.png": (Outcome.FILTERED, FilterReason.EXCLUDED, ""),
    }

    def check(left_out: list) -> None:
        found = {Path(entry.key).name: (entry.outcome, entry.reason, entry.stage) for entry in left_out}
        assert found == expected

    for name in expected:
        Image.new("RGB", (8, 8) if name == "small.png" else (64, 64)).save(tmp_path / name)
    *paths, other, draft = (str(tmp_path / name) for name in expected)
    refs = [
        ImageRef("birds/other.png", other, "birds", sha256="0" * 64),
        ImageRef("birds/draft.png", draft, "birds").filtered(FilterReason.EXCLUDED),
    ]
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        images = pipeline | beam.Create([*paths, *refs]) | ReadImages()
        chosen = images | DecodeAndResize(min_side=16, skip_formats="jpeg", drop="DARK")
        examples, left_out = chosen | BuildExamples(labels=["birds"])
        assert_that(examples, equal_to([]), "Nothing")
        assert_that(left_out, check)


def test_the_example_pipeline_explains_its_arguments_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "examples" / "custom_pipeline.py")
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(script, run_name="__main__")
    assert "needs a folder with one subfolder per class" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [script, str(PHOTOS), str(tmp_path / "out")])
    runpy.run_path(script, run_name="__main__")
    assert len(read_records(tmp_path.glob("out-*"))) == 61


def test_a_pipeline_is_built_without_the_interactive_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam's interactive runner needs packages that we do not install, and older ones than we do."""
    is_in_ipython = mock.Mock(return_value=True)
    monkeypatch.setattr(interactive_utils, "is_in_ipython", is_in_ipython)
    photos = make_tree(tmp_path / "in")
    with ThreadPoolExecutor(2) as pool:  # a notebook may convert two folders at once
        runs = [pool.submit(convert, input=photos, output=tmp_path / f"out{number}") for number in range(2)]
        results = [run.result() for run in runs]
    assert results[0].dataset.fingerprint == results[1].dataset.fingerprint
    is_in_ipython.assert_not_called()
    assert interactive_utils.is_in_ipython is is_in_ipython


def test_the_errors_are_public() -> None:
    public = {name: getattr(shardwright, name) for name in shardwright.__all__ if hasattr(errors, name)}
    assert set(public) == {
        "DataRefused", "EngineError", "NotRun", "ShardwrightError", "UnexpectedError", "UsageError",
    }  # fmt: skip
    assert all(issubclass(error, shardwright.ShardwrightError) for error in public.values())
    assert shardwright.MissingPackage is missing_packages.MissingPackage
    tree = errors.__doc__ or ""
    assert all(name in tree for name in (*public, "MissingPackage"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: shardwright.convert(input="photos", output="out", resize="0x5"),
            "resize='0x5': '0x5' is not a size in pixels; write 224 or 320x240.",
        ),
        (lambda: shardwright.convert(input="no photos", output="out"), "input='no photos' does not exist"),
        (lambda: shardwright.convert(input="photos"), "output= is missing"),
        (lambda: shardwright.rebuild(None, input="photos"), "output= is missing"),
        (lambda: shardwright.inspect("photos"), "name the output= of a conversion"),
        (lambda: shardwright.salvage("out", "saved"), "dataset='out' does not exist"),
        (lambda: shardwright.inspect("out", records=-1), "records=-1: write a whole number from 0 to 10,000"),
        (lambda: shardwright.plan(input="photos", map=len), "map=<built-in function len>: write it as"),
    ],
)
def test_an_error_is_one_sentence_about_arguments(
    call: Callable[[], Any], message: str, workplace: Path
) -> None:
    (workplace / "photos").mkdir()
    with pytest.raises(shardwright.UsageError) as found:
        call()
    assert message in str(found.value) and "--" not in str(found.value)
    shown = "".join(traceback.format_exception(found.value))
    assert shown.count("Traceback") == 1 and len(shown.splitlines()) < 12
    assert isinstance(found.value.__context__, shardwright.UsageError)  # the original, for a report of a bug


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("--resize 224: no", "resize=224: no"),
        ("--output is missing", "output= is missing"),
        ("with --resize (and --fit pad)", "with resize= (and fit='pad')"),
        ("choose --image_format png.", "choose image_format='png'."),
        ("choose --source manifest if its rows", "choose source='manifest' if its rows"),
        ("choose --layout detection.", "choose layout='detection'."),
        ("--input 'a/*.jpg' names", "input='a/*.jpg' names"),
        ("leave out --splits train=0.8,test=0.2;", "leave out splits='train=0.8,test=0.2';"),
        ("--overwrite or --resume", "overwrite=True or resume=True"),
        ("(--label_regex)", "(label_regex=)"),
        ("see --help.", "see help(shardwright.convert)."),
        ("Beam rejects --temp_location x", "Beam rejects --temp_location x"),
        ("--input my photos: no", "input='my photos': no"),
        ("write --input my photos/rows.csv.", "write input='my photos/rows.csv'."),
        ("--overwrite maybe: write true or false", "overwrite='maybe': write true or false"),
        ("run shardwright rebuild --output x", "run shardwright rebuild --output x"),
    ],
)
def test_options_become_arguments(options: str, arguments: str) -> None:
    assert in_python_words(options, shardwright.convert, ["my photos"]) == arguments


def test_some_options_are_other_arguments() -> None:
    assert in_python_words("use --quality.", shardwright.validate, []) == "use mode='quality'."
    assert in_python_words("--wait x: no", shardwright.rebuild, []) == "wait_minutes='x': no"


@pytest.mark.parametrize("name", ["convert", "plan", "rebuild"])
def test_signature_and_help_show_every_setting(name: str) -> None:
    call = getattr(shardwright, name)
    parameters = inspect.signature(call).parameters
    settings = [item for item in CONVERT_SETTINGS.values() if name != "rebuild" or not item.not_for_rebuilds]
    assert "values" not in parameters and {"beam_options", "progress"} < set(parameters)
    for item in settings:
        parameter = parameters[item.name]
        assert (parameter.default, parameter.kind.name) == (item.default, "KEYWORD_ONLY")
        assert f"      {item.name}: {item.sentence.split()[0]}" in call.__doc__
    assert ("scrub" in parameters) is (name == "rebuild")
    assert parameters["fit"].annotation == Literal["stretch", "contain", "cover", "fit", "pad"]


def test_an_unknown_exception_keeps_its_traceback() -> None:
    @called_from_python
    def fails() -> None:
        raise errors.UnexpectedError("The engine failed.") from ZeroDivisionError("the bug")

    with pytest.raises(shardwright.EngineError) as found:
        fails()
    assert isinstance(found.value.__cause__, ZeroDivisionError)
