"""What a program sees of an error: one exception, one sentence, in the words of Python."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import shardwright
from shardwright.pipelines.python_calls import called_from_python, in_python_words
from shardwright.schemas import errors, missing_packages
from shardwright.schemas.configuration.settings_values import setting_fields


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
        (lambda: shardwright.inspect("photos"), "name the output= of a conversion"),
        (lambda: shardwright.salvage("out", "saved"), "dataset='out' does not exist"),
    ],
)
def test_an_error_is_one_sentence_about_arguments(
    call: Callable[[], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
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
        ("choose --image_format png.", "choose image_format='png'."),
        ("choose --color gray for one channel", "choose color='gray' for one channel"),
        ("--input 'a/*.jpg' names", "input='a/*.jpg' names"),
        ("leave out --splits train=0.8,test=0.2;", "leave out splits='train=0.8,test=0.2';"),
        ("--overwrite or --resume", "overwrite=True or resume=True"),
        ("(--label_regex)", "(label_regex=)"),
        ("see --help.", "see help(shardwright.convert)."),
        ("Beam rejects --temp_location x", "Beam rejects --temp_location x"),
        ("--input my photos: no", "input='my photos': no"),
    ],
)
def test_options_become_arguments(options: str, arguments: str) -> None:
    assert in_python_words(options, shardwright.convert, ["my photos"]) == arguments


def test_options_of_a_command_that_a_function_spells_otherwise() -> None:
    assert in_python_words("use --quality.", shardwright.validate, []) == "use mode='quality'."
    assert in_python_words("--wait x: no", shardwright.rebuild, []) == "wait_minutes= x: no"


@pytest.mark.parametrize("name", ["convert", "plan", "rebuild"])
def test_signature_and_help_show_every_setting(name: str) -> None:
    call = getattr(shardwright, name)
    parameters = inspect.signature(call).parameters
    settings = [item for item in setting_fields().values() if name != "rebuild" or not item.not_for_rebuilds]
    assert "values" not in parameters and {"beam_options", "progress"} < set(parameters)
    for item in settings:
        assert (parameters[item.name].default, parameters[item.name].kind.name) == (
            item.default,
            "KEYWORD_ONLY",
        )
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
