"""Writes a job file with a comment for each key, including keys that are not set.

A line that begins with `# ` is a comment for people. A line that begins with `#` and no space is YAML that is
switched off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from shardwright.core.sources.setting_choices import choices_of
from shardwright.pipelines.editor_schemas import schema_path
from shardwright.schemas.configuration.job import RebuildSettings
from shardwright.schemas.configuration.job_values import escaped
from shardwright.schemas.configuration.setting import Setting, settings_of
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.image_ref import printable

_SIZE = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
#: Values of the settings of a rebuild that are not set.
_EXAMPLES = {"keep_days": 30, "verify_sources": True, "scrub": "1/30", "lease_minutes": 60}
_OTHER_HELP = {
    "output": "the directory for the versions of the dataset and the pointer to the latest version",
    "plan_from": "the first version continues the plan of this dataset.json",
}

_HEAD = """\
# yaml-language-server: $schema={schema}
# Settings for `shardwright rebuild --job`; `shardwright convert --job` reads the ones that apply to it.
# Paths are relative to the directory in which the command runs. In values, ${NAME} is an environment
# variable, ${NAME:-default} is one with a default, and {date}, {time}, {year}, {month} and {day} are those of
# the run (UTC). Write $${NAME} or {{date}} for a literal ${NAME} or {date}.
# Options on the command line override the settings here.
"""
_GATES = """
# Checks that a new version has to pass. If it fails, it stays for inspection, and readers keep the previous
# version.
gates:
  # findings of the validation that refuse a version, and those that only warn; without fail_on, equal images
  # in two splits (SPLIT_LEAKAGE) only warn
#  fail_on: [SPLIT_LEAKAGE]
#  warn_on: [BOX_RANGE]
  # requirements for every version
#  min_images: 1000
#  min_images_per_class: 10
  # shares by which the number of records may fall and grow
  max_count_drop: 0.2
  max_count_jump: 5
  # how far the share of a class may change, and the share of images that may get other classes
  max_class_l_infinity: 0.2
  max_label_change_fraction: 0.1
  # share of images with faults
#  max_bad_fraction: 0.01
  # classes that lost all their images, and new classes: allow, warn or refuse
  vanished_classes: refuse
  new_classes: warn
"""
_HOOKS = """
# Commands (run without a shell) and webhooks (URLs that receive JSON) to call at the end of a run:
# on_success, on_no_change, on_refused, on_failure or on_any.
#hooks:
#  on_refused: {command: [notify.sh, refused]}
#  on_failure: {webhook: "https://example.org/${HOOK_TOKEN:-token}"}

# Beam's options, as on the command line. Without them, the job runs on this machine.
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
        lines += [_help(fields[name]), _pair(name, settings[name])]
        if name == "input":
            lines += [f"# detected as: {_on_one_line(text)}\n" for text in detected_as]
    lines.append(_GATES)
    lines.append("\n")
    for name, item in settings_of(RebuildSettings).items():
        lines += [_help(item), _pair(name, keep) if name == "keep" else "#" + _pair(name, _EXAMPLES[name])]
    lines.append(_HOOKS)
    lines.append("runner:\n" + "".join(_indented(runner)) if runner else _RUNNER)
    lines.append(_OTHERS)
    for name, item in fields.items():
        if name not in settings and not item.not_for_rebuilds:
            lines += [_help(item), "#" + _pair(name, item.default)]
    return "".join(lines)


def _on_one_line(text: str) -> str:
    """Returns a text as one line, so that it stays inside a YAML comment."""
    return "".join(char if char.isprintable() else " " for char in printable(text))


def _indented(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield "".join(f"  {line}" for line in _pair(name, value).splitlines(keepends=True))


def _help(item: Setting) -> str:
    choices = choices_of(item)
    among = f" ({', '.join(choices)})" if choices else ""
    return f"# {_OTHER_HELP.get(item.name) or item.help}{among}\n"


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
