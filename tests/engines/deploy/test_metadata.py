"""The parameters of the Flex Template: they match the settings, and accept only right values."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.examples import examples
from helpers.repository import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.core.sources.source import check_settings
from shardwright.pipelines import options
from shardwright.schemas.configuration.settings_values import setting_fields, settings_from
from shardwright.schemas.errors import UsageError
from shardwright.transforms.runners import WorkerOptions

FOLDER = ROOT / "deploy" / "dataflow"
DOCUMENT = json.loads((FOLDER / "metadata.json").read_text())
PARAMETERS = {entry["name"]: entry for entry in DOCUMENT["parameters"]}
KINDS = {"TEXT", "NUMBER", "BOOLEAN", "ENUM", "GCS_READ_FOLDER", "GCS_WRITE_FOLDER", "GCS_READ_FILE"}
#: Required for a conversion; a rebuild has these from its job file.
REQUIRED = {"input": "gs://my-bucket/photos", "output": "gs://my-bucket/datasets/v1"}

ASCII = st.characters(min_codepoint=32, max_codepoint=126)

#: Values that a parameter accepts.
RIGHT = [
    ("job", "gs://my-bucket/pets.yaml"), ("job", "gs://my-bucket/jobs of ü/pets.yml"),
    ("input", "gs://my-bucket/photos"), ("input", "gs://my-bucket"), ("input", "gs://my.bucket/a b/ü/"),
    ("output", "gs://my-bucket/datasets/v1"), ("overwrite", "true"), ("resume", "false"), ("seed", "0"),
    ("splits", "train=1"), ("splits", "train=0.8,validation=0.1,test=0.1"), ("splits", "a=1/3,b=2/3"),
    ("split_by", r"(patient\d+)"), ("shard_size", "128MB"), ("shard_size", "64 MiB"), ("shard_size", "0.5GB"),
    ("shard_size", "1000"), ("shards", "8"), ("shards", "train=8,test=1"), ("resize", "224"),
    ("map", "my_hooks:blur"), ("map", "my.own_hooks:blur2"),
    ("resize", "320x240"), ("quality", "1"), ("quality", "100"), ("background", "white"),
    ("folds", "0"), ("folds", "2"), ("folds", "19"), ("folds", "36"),
    ("depth", "8"), ("depth", "keep"), ("channels", "0"), ("channels", "3"), ("channels", "16"),
    ("white", "0"), ("white", "4095"), ("white", "65535"),
    ("background", "#ffffff"), ("background", "#fff"), ("max_pixels", "89478485"), ("max_bytes", "256MB"),
    ("bounds", "TOO_MANY_SCANS=500"), ("bounds", "TOO_MANY_SCANS=500,TOO_MANY_STRIPS=200000"),
    ("max_bad_fraction", "0.01"), ("max_bad_fraction", "0"), ("max_bad_fraction", "1"), ("limit", "1000"),
    ("class_names", "gs://b-b/names.txt"), ("plan_from", "gs://b-b/old/dataset.json"), ("fit", "pad"),
    ("image_root", "gs://b-b/images"), ("mask_dir", "gs://b-b/masks/"), ("keep_labels", "gs://b-b/keep.txt"),
    ("extra_columns", "price:float,tags:string[]"),
    ("extra_columns", "a:bool,b:enum,c:int32,d:uint32[],e:uint64,f:double,g:bytes,h:int"),
    ("label_depth", "1"), ("label_depth", "2"), ("label_depth", "all"), ("label_depth", "last"),
    ("label_regex", r"(?P<label>[a-z]+)\d+\.jpg"),
    ("layout", "vision"), ("license", "CC-BY-4.0"), ("citation", "Lovelace 1843"),
    ("description", "Cats é"), ("creator", "Ada Lovelace; org:A & B"), ("url", "https://example.com/a?b"),
    ("date_published", "2026-03-31"),
    ("pixel_shape", "28x28"), ("pixel_shape", "32x32x3"), ("rename_labels", "old=new"),
    ("min_bytes", "2kB"), ("min_side", "64"), ("max_aspect", "2.5"), ("max_aspect", "0"),
    ("max_per_class", "500"),
    ("drop", "BLURRY"), ("drop", "DARK,LIGHT"), ("include", "cats/*.jpg,dogs/"),
    ("exclude", "@gs://b-b/opt_out.txt"),
    ("gcs_user_project", "my-project"), ("gcs_user_project", "example.com:my-project"),
    ("gcs_user_project", "123456789012"),
    ("image_format", "webp"), ("number_of_worker_harness_threads", "1"), ("disk_size_gb", "50"),
    ("sdk_container_image", "europe-west1-docker.pkg.dev/my-project/images/shardwright:1.0"),
]  # fmt: skip
#: Values that a parameter refuses before a machine is started.
WRONG = [
    ("job", "pets.yaml"), ("job", "gs://my-bucket"), ("job", "gs://my-bucket/jobs/"), ("job", ""),
    ("input", "photos"), ("input", "gs:/b/x"), ("input", "gs://"), ("output", "gs://my-bucket"),
    ("output", "gs://my-bucket/"), ("output", "out"), ("overwrite", "yes"), ("overwrite", ""),
    ("splits", "train"), ("splits", "train=0"), ("splits", "train=2"), ("splits", "train=80%"),
    ("splits", "train=0.8 test=0.2"), ("splits", "a/b=1"), ("seed", "-1"), ("seed", "x"), ("shard_size", "0"),
    ("shard_size", "0MB"), ("shard_size", "128M"), ("shard_size", "-1MB"), ("shards", "0"),
    ("shards", "100000"),
    ("map", "blur"), ("map", "my-hooks:blur"), ("map", "hooks.py"),
    ("shards", "train=0"), ("resize", "0"), ("resize", "224x"), ("resize", "224x0"), ("resize", "-5"),
    ("folds", "1"), ("folds", "37"), ("folds", "-2"),
    ("depth", "16"), ("channels", "1"), ("channels", "17"), ("white", "65536x"), ("white", "-1"),
    ("quality", "0"), ("quality", "101"), ("background", "#ff"), ("max_pixels", "0"), ("max_bytes", "lots"),
    ("bounds", "500"), ("bounds", "TOO_MANY_SCANS"), ("bounds", "TOO_MANY_SCANS=0"), ("bounds", "scans=5"),
    ("max_bad_fraction", "2"), ("max_bad_fraction", "1.5"), ("max_bad_fraction", "1%"), ("limit", "-1"),
    ("image_root", "images/"), ("layout", "slim"), ("layout", "mine.yaml"),
    ("extra_columns", "price"), ("extra_columns", "price:money"),
    ("extra_columns", "price:int16"), ("label_depth", "0"), ("label_depth", "-1"), ("label_depth", "every"),
    ("pixel_shape", "32"), ("pixel_shape", "32x32x5"), ("keep_labels", "keep.txt"), ("bad_boxes", "mend"),
    ("license", " "), ("creator", ";"), ("url", "example.com"), ("date_published", "31.3.2026"),
    ("fit", "squeeze"), ("image_format", "gif"), ("class_names", "names.txt"), ("plan_from", "old/"),
    ("min_bytes", "0"), ("min_side", "-1"), ("max_aspect", "0.5"), ("max_per_class", "x"),
    ("drop", "ODD_SIZE"), ("gcs_user_project", "My Project"), ("gcs_user_project", "gs://my-bucket"),
    ("number_of_worker_harness_threads", "0"), ("disk_size_gb", "big"), ("sdk_container_image", "a b"),
]  # fmt: skip
#: Only the launch can check whether shares add up, and whether a color, a date or a regular expression is
#: valid.
TOLD_AT_LAUNCH = re.compile(
    "add up to|occurs twice|there is no bound|at most 1|is not a color|is not a regular expression"
    "|write a date|it needs a group|has no meaning|has a feature of that name|has not been read"
    "|do not store their size|there is no image format"
)


def takes(name: str, value: str) -> bool:
    return all(re.fullmatch(regex, value) for regex in PARAMETERS[name]["regexes"])


def test_the_file_matches_the_declared_settings() -> None:
    made = runpy.run_path(str(FOLDER / "make_metadata.py"))["as_text"]()
    assert (FOLDER / "metadata.json").read_text() == made, "run python deploy/dataflow/make_metadata.py"


def test_every_setting_is_a_parameter_and_every_parameter_an_option() -> None:
    parser = options.make_parser("convert", "", "")
    options.add_settings(parser)
    ours = {*setting_fields(), "job"}
    values = {name: next(value for known, value in RIGHT if known == name)
              for name in PARAMETERS if name not in ours}  # fmt: skip
    assert ours <= set(PARAMETERS)
    _, rest = parser.parse_known_args([f"--{name}=x" for name in ours])
    assert rest == []
    assert issubclass(WorkerOptions, PipelineOptions)  # so Beam knows its option
    known = PipelineOptions([f"--{name}={value}" for name, value in values.items()]).get_all_options(True)
    assert set(values) <= set(known)


def test_no_parameter_is_required_or_sent_by_default() -> None:
    with pytest.raises(UsageError, match="--input is missing"):
        settings_from({}).check()
    for name, entry in PARAMETERS.items():
        # A job file may contain any of them.
        assert entry["isOptional"] is True, name
        # The console would send it, and a setting that is sent overrides the carried plan's.
        assert "defaultValue" not in entry, name


def test_every_parameter_is_described() -> None:
    assert len(PARAMETERS) == len(DOCUMENT["parameters"])
    for name, entry in PARAMETERS.items():
        assert entry["paramType"] in KINDS, name
        assert entry["label"] and entry["groupName"] and entry["helpText"].endswith(tuple("abcdefghijklmnop"
            "qrstuvwxyz0123456789.)B")), name  # fmt: skip
        for regex in entry["regexes"]:
            assert regex.startswith("^") and regex.endswith("$")
            assert not re.search(r"\(\?|\\[dwsb]", regex), "what not every engine knows"


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_right_values_are_accepted(name: str, value: str) -> None:
    assert takes(name, value)
    if name in setting_fields():
        check_settings(settings_from(REQUIRED | {name: value}))


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_values_are_refused(name: str, value: str) -> None:
    assert not takes(name, value)


def test_the_table_contains_every_parameter_with_a_special_form() -> None:
    plain = {name for name, entry in PARAMETERS.items() if entry["paramType"] in ("ENUM", "BOOLEAN")}
    assert set(PARAMETERS) - plain - {name for name, _ in RIGHT} <= {
        name for name in PARAMETERS if PARAMETERS[name]["regexes"] == [r"^[^\n\r]+$"]
    }


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [name for name in PARAMETERS if name in setting_fields()])
def test_the_command_accepts_what_the_template_accepts(name: str) -> None:
    (regex,) = PARAMETERS[name]["regexes"]

    @settings(max_examples=examples(40), deadline=None, derandomize=True)
    @given(st.from_regex(regex.replace("$", r"\Z"), alphabet=ASCII))
    def check(value: Any) -> None:
        try:
            check_settings(settings_from(REQUIRED | {name: value}))
        except UsageError as error:
            assert TOLD_AT_LAUNCH.search(error.message), error.message

    check()
