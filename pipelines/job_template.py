"""Writes a job file with a comment for each key, including keys that are not set.

A line that begins with `# ` is for people; one that begins with `#` and no space is YAML that is switched
off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from shardwright.pipelines.editor_schemas import schema_path
from shardwright.schemas.configuration.job_values import escaped
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.image_ref import printable
from shardwright.transforms.sources.choices import choices_of

_SIZE = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_OTHER_HELP = {
    "output": "the directory that gets the versions of the dataset, and the pointer to the latest",
    "plan_from": "of the first version, which carries on the plan of this dataset.json",
}

_HEAD = """\
# yaml-language-server: $schema={schema}
# What `shardwright rebuild --job` does, and `shardwright convert --job` as far as it concerns it.
# Relative paths begin where the command is run. In values ${NAME} is an environment variable,
# ${NAME:-default} one that may be missing, and {date}, {time}, {year}, {month} and {day} are those of the
# run (UTC); $${NAME} and {{date}} stay as they are, with one $ and one pair of braces.
# Options on the command line count more than the settings here.
"""
_GATES = """
# What a new version has to pass; one that does not stays for inspection, and readers keep the one before.
gates:
  # findings of the validation that refuse a version, and those that only warn
{fail_on}  fail_on: [SPLIT_LEAKAGE]
#  warn_on: [BOX_RANGE]
  # what every version must be like
#  min_images: 1000
#  min_images_per_class: 10
  # shares by which the number of records may fall and grow
  max_count_drop: 0.2
  max_count_jump: 5
  # how far the share of a class may move, and the share of images that may get other classes
  max_class_l_infinity: 0.2
  max_label_change_fraction: 0.1
  # share of images with faults
#  max_bad_fraction: 0.01
  # classes that have no images any more, and those that had none before: allow, warn or refuse
  vanished_classes: refuse
  new_classes: warn
"""
_RETENTION = """
# How many published versions stay, 0 for all; the latest one and pinned ones always do.
keep: {keep}
# Younger ones stay too, in days.
#keep_days: 30
# Read and hash every source, instead of trusting its size and time.
#verify_sources: true
# Share of the latest version's shards to read again in each run, so that damage on the disk is found and
# repaired; by default all are read within 30 runs. 1 reads all, 0 none.
#scrub: 1/30
# After how many silent minutes another run takes over.
#lease_minutes: 60

# Who is told of the end of a run: on_success, on_no_change, on_refused, on_failure, or on_any; a command
# (which no shell runs), an address that gets JSON, or both.
#hooks:
#  on_refused: {{command: [notify.sh, refused]}}
#  on_failure: {{webhook: "https://example.org/${{HOOK_TOKEN:-token}}"}}

# Beam's options, as on the command line; without any the job runs on this machine.
"""
_RUNNER = """\
#runner:
#  runner: DataflowRunner
#  project: my-project
#  region: europe-west1
#  temp_location: gs://my-bucket/tmp
"""
_OTHERS = """
# The other settings, with their defaults.
"""


def job_text(
    settings: Mapping[str, Any], *, keep: int, runner: Mapping[str, Any], detected_as: Sequence[str] = ()
) -> str:
    """Returns a job file.

    Args:
      settings: Settings by name, as the file will contain them, with placeholders.
      keep: Number of versions to keep.
      runner: Beam's options by name: a text, or several.
      detected_as: Detected kind of the input, in words.
    """
    fields = setting_fields()
    lines = [_HEAD.replace("{schema}", schema_path("job").as_uri()), "\n"]
    for name in sorted(settings, key=list(fields).index):
        lines += [_help(name), _pair(name, settings[name])]
        if name == "input":
            lines += [f"# taken for: {_on_one_line(text)}\n" for text in detected_as]
    # A version that is not validated has no findings.
    lines.append(_GATES.format(fail_on="#" if settings.get("verify") == "none" else ""))
    lines.append(_RETENTION.format(keep=keep))
    lines.append("runner:\n" + "".join(_indented(runner)) if runner else _RUNNER)
    lines.append(_OTHERS)
    for name, item in fields.items():
        if name not in settings and not item.metadata["not_for_rebuilds"]:
            lines += [_help(name), "#" + _pair(name, item.default)]
    return "".join(lines)


def _on_one_line(text: str) -> str:
    """Returns a text as one line, so that it stays inside a YAML comment."""
    return "".join(char if char.isprintable() else " " for char in printable(text))


def _indented(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield "".join(f"  {line}" for line in _pair(name, value).splitlines(keepends=True))


def _help(name: str) -> str:
    metadata, choices = setting_fields()[name].metadata, choices_of(name)
    among = f" ({', '.join(choices)})" if choices else ""
    return f"# {_OTHER_HELP.get(name) or metadata['help']}{among}\n"


def _pair(name: str, value: Any) -> str:
    """Returns the lines that give a key its value, quoted where YAML needs it."""
    if isinstance(value, tuple | list):
        items = [_scalar(item, path=name == "input") for item in value]
        return (
            f"{name}: {items[0]}\n"
            if len(items) == 1
            else "".join([f"{name}:\n", *(f"  - {item}\n" for item in items)])
        )
    return f"{name}: {_scalar(value)}\n"


def _scalar(value: Any, path: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = escaped(str(value))
    if _SIZE.fullmatch(text) and not path:
        return text  # people write resize: 224 without quotes, and it is read as text
    odd = not all(char.isprintable() for char in text)  # YAML folds some of them
    dumped = yaml.safe_dump(text, default_style='"' if odd else None, allow_unicode=not odd, width=1 << 30)
    return dumped.removesuffix("\n").removesuffix("\n...")
