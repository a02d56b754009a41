"""Imports Beam without the parts that local runs seldom use, and imports each of those when it is used.

`import apache_beam` also imports pandas, pyarrow, beartype, boto3, and the clients of MongoDB, BigQuery,
Pub/Sub and Cloud Storage: two thirds of its time, and half of its memory. While Beam is imported here, it
does not find these packages, or finds stand-ins for them; it works without them. After that anybody can
import them as ever. `apache_beam.io` imports the rest when one of its names is used, and `FileSystems` when
a path needs it.

Only a process that is ours does this: a command, or one of its worker processes. In a notebook or another
program, `import_beam` is a plain import.

To support another version of Beam, compare its import statements with `PARTS` and `NOT_FOUND`, add it to
`beam_patches.BEAM_VERSIONS` and run `tests/pipelines/test_beam_imports.py`. Unknown versions are imported as
a whole.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from shardwright.pipelines.beam_patches import BEAM_VERSIONS

_IO = "apache_beam.io"
_SYSTEMS = "apache_beam.io.filesystems"
_TYPES = "apache_beam.typehints"
_BEAM = "apache_beam"
_ALL, _ITSELF = "*", "."


class Part(NamedTuple):
    """An import statement of Beam that is left out, and carried out later.

    Attributes:
      into: Module of Beam that contains the statement.
      module: Module that it imports.
      names: What it imports from that module: name -> name in `into`. `*` stands for all public names, and
        `.` for the module itself.
    """

    into: str
    module: str
    names: dict[str, str]


#: What is left out, in Beam's own order.
PARTS = (
    Part(_TYPES, f"{_TYPES}.pandas_type_compatibility", {_ALL: ""}),
    Part(_TYPES, f"{_TYPES}.arrow_type_compatibility", {_ALL: ""}),
    Part(f"{_TYPES}.typehints", "beartype.door", {"is_subhint": "is_subhint"}),
    Part(f"{_TYPES}.typehints", "beartype.roar", {"BeartypeDoorException": "BeartypeDoorException"}),
    Part("apache_beam.utils.retry", "apitools.base.py.exceptions", {"HttpError": "HttpError"}),
    Part(
        "apache_beam.utils.retry", "google.api_core.exceptions", {"GoogleAPICallError": "GoogleAPICallError"}
    ),
    Part(  # since 2.75
        "apache_beam.runners.dataflow.dataflow_runner", "google.cloud.dataflow", {_ITSELF: "dataflow_api"}
    ),
    Part(_SYSTEMS, f"{_IO}.gcp.gcsfilesystem", {"GCSFileSystem": "GCSFileSystem"}),
    Part(_SYSTEMS, f"{_IO}.aws.s3filesystem", {"S3FileSystem": "S3FileSystem"}),
    Part(_SYSTEMS, f"{_IO}.azure.blobstoragefilesystem", {"BlobStorageFileSystem": "BlobStorageFileSystem"}),
    Part(_IO, f"{_IO}.mongodbio", {_ALL: ""}),
    Part(_IO, f"{_IO}.parquetio", {_ALL: ""}),
    Part(_IO, f"{_IO}.gcp.bigquery", {_ALL: ""}),
    Part(_IO, f"{_IO}.gcp.pubsub", {_ALL: ""}),
    Part(_IO, f"{_IO}.gcp.gcsio", {_ITSELF: "gcsio"}),
    Part(_IO, "apache_beam.transforms.xlang.io", {_ALL: ""}),
)
#: Modules that Beam does not find; it continues without each of them. The first of several that one statement
#: of Beam guards is enough.
NOT_FOUND = frozenset((
    "IPython", "apitools", "google.cloud.dataflow", "pandas", "pyarrow", "pyarrow_hotfix",
    f"{_IO}.aws.s3filesystem", f"{_IO}.azure.blobstoragefilesystem", f"{_IO}.gcp.bigquery",
    f"{_IO}.gcp.gcsfilesystem",
))  # fmt: skip
#: Modules that Beam uses only inside of functions.
_STAND_INS = ("httplib2", "beartype.door", "beartype.roar", f"{_IO}.mongodbio", f"{_IO}.parquetio")
#: What a run in this process imports in any case.
_RUN = (
    _BEAM,
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    "apache_beam.runners.worker.sdk_worker",
)
#: Options of Beam that choose its parts.
_CHOOSE_PARTS = frozenset(("runner", "beam_plugins"))

_lock = threading.RLock()
#: Whether this process runs nothing but a command.
_is_ours = False
#: The parts that are still missing.
_missing: list[Part] = []


class _NotFound:
    """A finder that does not find some modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in NOT_FOUND or name.partition(".")[0] in NOT_FOUND:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _StandIn(ModuleType):
    """Stands for a module that is imported when something of it is used."""

    __all__: tuple[str, ...] = ()  # what `from ... import *` takes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


def process_is_ours() -> None:
    """Declares that this process runs a command and nothing else."""
    global _is_ours
    _is_ours = True


def is_process_ours() -> bool:
    """Returns whether this process runs a command and nothing else."""
    return _is_ours


def import_beam(options: Iterable[str] = ()) -> None:
    """Imports Beam, without its seldom used parts if this process is ours and runs the job itself.

    Args:
      options: Beam's options; all of Beam is imported if they choose a part of it, such as another runner.
    """
    if _BEAM in sys.modules:
        return
    chosen = any(
        option.partition("=")[0].removeprefix("--").replace("-", "_") in _CHOOSE_PARTS for option in options
    )
    if _is_ours and not chosen and _installed_version() in BEAM_VERSIONS:
        _import_without_parts(_RUN)
    else:
        import_module(_BEAM)


def _installed_version() -> str:
    """Returns the version of Beam without importing it; empty if it is unknown."""
    spec = importlib.util.find_spec(_BEAM)
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return ""
    found = re.search(r"__version__ = ['\"]([^'\"]+)['\"]", text)
    return found[1] if found else ""


def _import_without_parts(modules: Sequence[str]) -> None:
    """Imports modules of Beam without `PARTS`."""
    finder = _NotFound()
    stand_ins = {name: _StandIn(name) for name in _STAND_INS if name not in sys.modules}
    if "beartype.door" in stand_ins:
        vars(stand_ins["beartype.door"])["is_subhint"] = _is_subhint
        vars(stand_ins["beartype.roar"])["BeartypeDoorException"] = Exception
    sys.modules.update(stand_ins)
    sys.meta_path.insert(0, finder)
    try:
        for name in modules:
            import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
    _missing.extend(PARTS)
    _import_on_use()


def _is_subhint(*hints: Any) -> Any:
    """Compares two type hints as Beam does; most of its comparisons end before they come to beartype."""
    _import_parts(lambda part: part.into == f"{_TYPES}.typehints")
    return import_module(f"{_TYPES}.typehints").is_subhint(*hints)


def _import_on_use() -> None:
    """Has Beam's modules import what they lack when it is used."""
    from apache_beam import io
    from apache_beam.io import filesystems

    def __getattr__(name: str) -> Any:  # noqa: N807  what Python calls for a name that a module lacks
        if not name.startswith("__") and _import_parts(lambda part: part.into == _IO):
            return getattr(io, name)
        raise AttributeError(f"module {_IO!r} has no attribute {name!r}")

    find = filesystems.FileSystems.get_filesystem

    def get_filesystem(path: str) -> Any:
        if filesystems.FileSystems.get_scheme(path) not in _SCHEMES_OF_BEAM:
            _import_parts(lambda part: part.into in (_SYSTEMS, "apache_beam.utils.retry"))
        return find(path)

    vars(io)["__getattr__"] = __getattr__
    filesystems.FileSystems.get_filesystem = staticmethod(get_filesystem)
    _undo.append(lambda: setattr(filesystems.FileSystems, "get_filesystem", staticmethod(find)))
    _undo.append(lambda: delattr(io, "__getattr__"))


#: Schemes of the file systems that are not left out: local paths and Hadoop.
_SCHEMES_OF_BEAM = (None, "hdfs")
#: What restores Beam once nothing is missing.
_undo: list[Callable[[], Any]] = []


def complete() -> None:
    """Imports every missing part, after which Beam is as a plain import leaves it."""
    _import_parts(lambda _: True)


def _import_parts(wanted: Callable[[Part], bool]) -> bool:
    """Imports those of the missing parts that are wanted; returns whether there were any."""
    with _lock:
        parts = [part for part in _missing if wanted(part)]
        for part in parts:
            _missing.remove(part)
        if not _missing:
            while _undo:
                _undo.pop()()
        for part in parts:
            _import_part(part)
        return bool(parts)


def _import_part(part: Part) -> None:
    target = sys.modules.get(part.into)
    try:
        module = import_module(part.module)
    except ImportError:  # its package is not installed; Beam continues without it, too
        return
    if target is None:
        return
    names = part.names
    if _ALL in names:
        public = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        names = {name: name for name in public}
    for name, own_name in names.items():
        setattr(target, own_name, module if name == _ITSELF else getattr(module, name))
