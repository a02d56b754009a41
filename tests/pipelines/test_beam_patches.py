"""The patches of Beam: how long they are active, what they rely on, and that no result depends on them."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import logging
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.worker import sdk_worker, statecache
from apache_beam.runners.worker.statesampler import StateSampler, get_current_tracker
from apache_beam.transforms import core, userstate
from apache_beam.utils.counters import CounterFactory
from helpers.hostile import shard_hashes
from helpers.long_tail import slow
from helpers.patched_beam import unpatched
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines import beam_patches, cli
from shardwright.pipelines.beam_options import OptionsParsedOnce
from shardwright.pipelines.beam_patches import PATCHES, apply_patches, patching
from shardwright.pipelines.run import exit_code_of, run_pipeline, suppress_beam_logs

_COUNT = userstate.ReadModifyWriteStateSpec("count", VarIntCoder())
_PARAMETER = beam.DoFn.StateParam(_COUNT)
_ADVICE = (
    "Beam has changed what the patch {!r} goes by. Read the new code, adapt the patch if it has to be, and "
    "write down the version and the digest in beam_patches.py."
)


class _Plain(beam.DoFn):
    def process(self, element: int):
        yield element


class _Counting(beam.DoFn):
    def process(self, element: int, count=_PARAMETER):
        yield element


@pytest.fixture
def beam_as_installed() -> Iterator[None]:
    """Beam and Python without the patches that the suite uses."""
    with unpatched():
        yield


@dataclass(frozen=True)
class ReliedOn:
    """Code of Beam that is not replaced, and whose details count all the same.

    Attributes:
      name: What Beam does with it.
      checked: Dotted path of the function.
      beam_versions: Versions of Beam that it was checked in.
      sha256: Digest of its source in these versions.
    """

    name: str
    checked: str
    beam_versions: tuple[str, ...]
    sha256: str


#: What `OptionsParsedOnce` extends, what names the threads of workers, and the end of what a patch begins.
RELIED_ON = (
    ReliedOn(
        "end of the measurement of steps",
        "apache_beam.runners.worker.statesampler.StateSampler.stop",
        beam_patches.BEAM_VERSIONS,
        "6d446d02e6f67035ef6aefc5d815400edc61f0e8371467319b2f1db6830f2f70",
    ),
    ReliedOn(
        "views of options",
        "apache_beam.options.pipeline_options.PipelineOptions.view_as",
        beam_patches._SINCE_2_74,
        "3fd63693be9c56f3f335a2828c98595036835564dc3c0db838fbae11e408ef0f",
    ),
    ReliedOn(  # another name of the same type in its annotation
        "views of options",
        "apache_beam.options.pipeline_options.PipelineOptions.view_as",
        beam_patches._UNTIL_2_73,
        "514c9060085072c93451b7a67e605ca85dca447538a1ac981ecfc67e6f0d79a5",
    ),
    ReliedOn(
        "threads of workers in this process",
        "apache_beam.runners.worker.worker_pool_main.BeamFnExternalWorkerPoolServicer.StartWorker",
        beam_patches._SINCE_2_74,
        "766cce5c5a7ae3f8c5235e5c16708992136307b0b38f60557e9e761283c14b8f",
    ),
    ReliedOn(  # does not keep the threads in a dictionary
        "threads of workers in this process",
        "apache_beam.runners.worker.worker_pool_main.BeamFnExternalWorkerPoolServicer.StartWorker",
        beam_patches._UNTIL_2_73,
        "d6d4ee97d5147242a6be874c55ba0fa8af471af6a295f0e03df6fed6d31bee58",
    ),
)


def state() -> list[Any]:
    """Returns the current value of everything that patches change."""
    places = [patch.place.rpartition(".") for patch in PATCHES]
    return [getattr(beam_patches.found(owner), name, None) for owner, _, name in places]


def test_patched_views_equal_beams_and_share_values() -> None:
    argv = ["--runner=DirectRunner", "--direct_num_workers=3", "--unknown=1"]
    ours, beams = OptionsParsedOnce(argv), PipelineOptions(argv)
    assert ours.view_as(DirectOptions).direct_num_workers == 3
    ours.view_as(StandardOptions).runner = beams.view_as(StandardOptions).runner = "Other"
    assert ours.view_as(StandardOptions).runner == "Other"
    assert ours.get_all_options() == beams.get_all_options()
    copied = copy.deepcopy(ours)
    copied.view_as(StandardOptions).runner = "Third"
    assert copied.get_all_options()["runner"] == "Third" and ours.get_all_options()["runner"] == "Other"


def test_patched_state_can_be_read_repeatedly(beam_as_installed: None) -> None:
    with patching():
        apply_patches()
        apply_patches()
        for _ in range(2):
            assert not userstate.is_stateful_dofn(_Plain())
            assert userstate.get_dofn_specs(_Counting()) == ({_COUNT}, set())
        own = _Plain()
        own.process = MethodType(_Counting.process, own)
        assert userstate.is_stateful_dofn(own), "of this object alone"
        assert not userstate.is_stateful_dofn(_Plain())


def test_patched_functions_return_what_beams_return(beam_as_installed: None) -> None:
    def plain(element: int, other: str = "x") -> int:
        return element

    def both(element: int):
        if element:
            return [element]
        yield element

    named = (core.get_function_args_defaults, core._check_fn_use_yield_and_return, statecache.get_deep_size)
    look, check, weigh = map(inspect.unwrap, named)
    functions = (plain, both, _Plain().process, _Counting().process, len)
    values = (b"abc", ["x"] * 3, {"a": (1, 2.5)}, replace(PATCHES[0]))
    with suppress_beam_logs(verbose=False), patching():
        apply_patches()
        for function in functions[:-1]:
            assert core.get_function_args_defaults(function) == look(function)
        core.get_function_args_defaults(plain)[0].clear()
        assert core.get_function_args_defaults(plain) == (["element", "other"], ["x"])
        for function in functions:
            assert core._check_fn_use_yield_and_return(function) == check(function)
        assert core._check_fn_use_yield_and_return(both)
        for value in values:
            assert statecache.get_deep_size(value) == weigh(value)


def test_the_end_of_a_bundle_waits_for_no_thread(beam_as_installed: None) -> None:
    with patching():
        apply_patches()
        sampler = StateSampler("stage", CounterFactory())
        step = sampler.scoped_state("step", "process")
        threads = set(threading.enumerate())  # those of other tests may end meanwhile
        for _ in range(2):  # a bundle processor is used again
            sampler.start()
            assert set(threading.enumerate()) <= threads and get_current_tracker() is sampler
            assert sampler.get_info().tracked_thread is threading.current_thread()
            with step:
                assert sampler.current_state() is step
            sampler.stop_if_still_running()
            sampler.stop_if_still_running()
            assert sampler.finished and get_current_tracker() is None
            sampler.commit_counters()
            sampler.reset()
        sampler.start()
    sampler.stop_if_still_running()  # by a worker that is late
    assert sampler.finished and get_current_tracker() is None


@pytest.mark.parametrize("name", sorted({patch.name for patch in PATCHES}))
def test_the_code_that_patches_replace_is_unchanged(name: str) -> None:
    patches = [patch for patch in PATCHES if patch.name == name]
    (patch,) = (patch for patch in patches if beam.__version__ in patch.beam_versions)
    with unpatched():
        assert beam_patches.source_digest(patch.checked) == patch.sha256, _ADVICE.format(name)
    versions = [version for patch in patches for version in patch.beam_versions]
    assert sorted(versions) == sorted(beam_patches.BEAM_VERSIONS), "each version has one digest"


@pytest.mark.parametrize("name", sorted({item.name for item in RELIED_ON}))
def test_the_code_that_patches_rely_on_is_unchanged(name: str) -> None:
    items = [item for item in RELIED_ON if item.name == name]
    (known,) = (item for item in items if beam.__version__ in item.beam_versions)
    with unpatched():
        assert beam_patches.source_digest(known.checked) == known.sha256, _ADVICE.format(name)
    versions = [version for item in items for version in item.beam_versions]
    assert sorted(versions) == sorted(beam_patches.BEAM_VERSIONS), "each version has one digest"


@pytest.mark.parametrize("patch", PATCHES, ids=lambda item: item.name)
def test_a_change_of_beam_would_be_detected(patch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: another function in the same place has another digest."""
    owner, _, name = patch.checked.rpartition(".")
    monkeypatch.setattr(beam_patches.found(owner), name, lambda: "of another version")
    assert beam_patches.source_digest(patch.checked) != patch.sha256


def test_another_version_of_beam_is_patched_only_where_it_is_equal(beam_as_installed: None) -> None:
    known = PATCHES[0]
    assert beam_patches.fits(known)
    later = replace(known, beam_versions=("1.0",))
    assert beam_patches.fits(later), "its source is the same"
    assert not beam_patches.fits(replace(later, sha256="0" * 64))
    assert not beam_patches.fits(replace(later, checked="apache_beam.transforms.userstate.no_such_function"))


def test_only_commands_patch_beam_and_they_undo_the_patches(beam_as_installed: None) -> None:
    before, during = state(), []

    def build(pipeline: Any) -> None:
        during.append(state())
        _ = pipeline | beam.Create([1])

    def command() -> int:
        run_pipeline(build, PipelineOptions([]))
        return 0

    def broken() -> int:
        command()
        raise RuntimeError("no")

    assert command() == 0 and during.pop() == before, "a library call leaves Beam as it is"
    for run, code in ((command, 0), (broken, 3)):
        assert exit_code_of(run, lambda: False) == code
        patched = during.pop()
        assert all(now is not then for now, then in zip(patched, before, strict=True))
        assert state() == before


def test_a_nested_command_keeps_the_patches_of_the_outer_one(beam_as_installed: None) -> None:
    before = state()
    with patching():
        apply_patches()
        patched = state()
        assert exit_code_of(lambda: apply_patches() or 0, lambda: False) == 0
        assert state() == patched != before
    assert state() == before


def _raise_in_a_thread(function: Any) -> list[threading.ExceptHookArgs]:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
    return []


def test_tracebacks_of_beams_workers_are_hidden_and_all_others_shown(
    beam_as_installed: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda raised: shown.append(str(raised.exc_value)))
    of_beam: dict[str, Any] = {"__name__": "apache_beam.runners.worker.made_up"}
    exec("def fail():\n    raise ValueError('of a worker')", of_beam)

    def own() -> None:
        raise ValueError("our own")

    def both() -> None:
        for function in (of_beam["fail"], own):
            _raise_in_a_thread(function)
        vars(sdk_worker).get("print", print)("a traceback", file=sys.stderr)

    with suppress_beam_logs(False), patching():
        apply_patches()
        both()
        assert shown == ["our own"] and capsys.readouterr().err == ""
    both()
    assert shown[1:] == ["of a worker", "our own"] and capsys.readouterr().err == "a traceback\n"
    with suppress_beam_logs(True), patching():
        apply_patches()
        both()
        assert shown[3:] == ["of a worker", "our own"] and capsys.readouterr().err == "a traceback\n"


def test_a_late_worker_is_waited_for_but_not_for_long(
    beam_as_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, released = [], threading.Event()

    def late() -> None:
        released.wait(10)
        done.append(vars(sdk_worker).get("print"))

    thread = threading.Thread(target=late, name="run_worker_7", daemon=True)
    with patching():
        apply_patches()
        thread.start()
        threading.Timer(0.05, released.set).start()
    assert done[0] is not None, "it still found the patch"
    monkeypatch.setattr(beam_patches, "LATE_WORKER_SECONDS", 0.01)
    released.clear()
    thread = threading.Thread(target=late, name="run_worker_8", daemon=True)
    with patching():
        apply_patches()
        thread.start()
    assert len(done) == 1
    released.set()
    thread.join()


def test_the_loggers_of_engines_are_enabled_again_afterwards() -> None:
    logger = logging.getLogger("PrismJobServer")
    before = logger.disabled
    with suppress_beam_logs(False):
        assert logger.disabled
    assert logger.disabled == before
    with suppress_beam_logs(True):
        assert not logger.disabled


def imported_names(tree: ast.AST) -> set[str]:
    """Returns the names in a module that are bound by imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("shardwright"):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


#: A text that can assign to an attribute of something else than `self`. To parse all modules takes seconds.
_CAN_ASSIGN = re.compile(r"(?<!\bself)\.\w+(,[^=()]*)?\)? =\s|\bsetattr\(|\bvars\(|\bdel\b")


def assigned_in(text: str) -> set[str]:
    """Returns the attributes of imported objects to which a module assigns."""
    if not _CAN_ASSIGN.search(text):
        return set()
    tree = ast.parse(text)
    names, found = imported_names(tree), set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else ()
        flat = [item for target in targets for item in getattr(target, "elts", [target])]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            flat = [ast.Attribute(node.args[0], ast.unparse(node.args[1]))]
        for target in flat:
            of = target.value if isinstance(target, ast.Attribute | ast.Subscript) else None
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "vars":
                of = of.args[0]
            elif isinstance(target, ast.Subscript):
                continue
            root = of
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                found.add(ast.unparse(target))
    return found


#: Assignments to streams, which the same function undoes.
_MEANT_FOR_IT = {
    "pipelines/streams.py": {"sys.stdout", "sys.stderr"},
    "pipelines/run.py": {"sys.stderr"},
    "pipelines/temporary_folder.py": {"tempfile.tempdir"},
    "transforms/images/pillow_settings.py": {"Image.MAX_IMAGE_PIXELS", "ImageFile.LOAD_TRUNCATED_IMAGES"},
}


def test_an_assignment_to_a_library_is_detected() -> None:
    text = "import a.b, c as d\nfrom e import f\nown = a.b.x = 1\nvars(f)['y'] = 2\nsetattr(d, 'z', 3)\n"
    assert assigned_in(text + "own.x = 4") == {"a.b.x", "vars(f)['y']", "d.'z'"}


#: The file of the patches, and the one that imports Beam in parts and completes it later.
_MAY_PATCH = ("beam_patches.py", "beam_imports.py")


def test_no_other_file_patches_a_library() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): assigned
        for room in ("package", "pipelines", "loader", "transforms", "schemas")
        for path in (ROOT / room).rglob("*.py")
        if path.name not in _MAY_PATCH and (assigned := assigned_in(path.read_text()))
    }
    assert found == _MEANT_FOR_IT


def findings_of(dataset: Path) -> dict[str, Any]:
    """Returns the findings that validation wrote, without their times and place."""
    document = json.loads((dataset / "findings.json").read_text())
    for finding in document["findings"]:
        del finding["time"]
    names = ("fingerprint", "mode", "sound", "passed", "counts", "findings", "records", "bytes")
    return {name: document[name] for name in names}


#: Converts, validates and rebuilds in a process with unchanged Beam.
_PLAIN = """
import sys
from shardwright.pipelines import beam_patches
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate

def state():
    places = [patch.place.rpartition(".") for patch in beam_patches.PATCHES]
    return [getattr(beam_patches.found(owner), name, None) for owner, _, name in places]

if __name__ == "__main__":
    source, folder, settings = sys.argv[1], sys.argv[2], dict(word.split(":") for word in sys.argv[3:])
    before = state()
    convert(input=source, output=f"{folder}/converted", **settings)
    validate(f"{folder}/converted", mode="quality")
    rebuild(input=source, output=f"{folder}/rebuilt", **settings)
    assert state() == before
"""


@pytest.mark.parametrize("own_process", [False, *slow([True])])
def test_results_are_equal_without_patches(
    own_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"splits": "train=0.7,test=0.3", "shards": "train=2,test=1", "resize": "24", "limit": "12"}
    plain, patched = tmp_path / "plain", tmp_path / "patched"
    (tmp_path / "plain.py").write_text(_PLAIN)
    given = [":".join(item) for item in settings.items()]
    argv = [str(tmp_path / "plain.py"), str(PHOTOS), str(plain), *given]
    if own_process:
        subprocess.run([sys.executable, *argv], check=True, timeout=300)
    else:
        with monkeypatch.context() as patch, unpatched():
            patch.setattr(sys, "argv", argv)
            runpy.run_path(argv[0], run_name="__main__")

    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    source = ["--input", str(PHOTOS), "--output"]
    assert cli.main(["convert", *source, str(patched / "converted"), *options]) == 0
    assert cli.main(["validate", str(patched / "converted"), "--quality"]) == 0
    assert cli.main(["rebuild", *source, str(patched / "rebuilt"), *options]) == 0
    datasets = [[folder / "converted", latest(folder / "rebuilt")] for folder in (plain, patched)]
    made = [[(shard_hashes(dataset), findings_of(dataset)) for dataset in pair] for pair in datasets]
    assert made[0] == made[1]
    for name in ("statistics.json", "stats.pb"):
        assert (plain / "converted" / name).read_bytes() == (patched / "converted" / name).read_bytes()


def latest(output: Path) -> Path:
    """Returns the directory of the latest version."""
    version = json.loads((output / "latest.json").read_text())["version"]
    return next(path.parent for path in output.rglob("dataset.json") if version in str(path))
