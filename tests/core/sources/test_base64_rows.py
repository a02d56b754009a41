"""Images as base64 text in JSON Lines are read from the ranges of their text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.embedded import png, read, refs_of

from shardwright.core.sources.tables import files
from shardwright.schemas.errors import ImageFault

_IMAGES = [png(number, (40 + number, 30)) for number in range(6)]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _write(path: Path, rows: list[dict[str, object]], slashes: bool = False) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text.replace("/", "\\/") if slashes else text)
    return path


_FORMS: dict[str, Callable[[bytes], object]] = {
    "plain": _text,
    "slashes": _text,
    "named": _text,
    "url": lambda data: f"data:image/png;base64,{_text(data)}",
    "object": lambda data: {"bytes": _text(data), "path": "x.png"},
    "urlsafe": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "lines": lambda data: base64.encodebytes(data).decode(),
}


@pytest.mark.parametrize("form", _FORMS)
def test_base64_images_are_read(tmp_path: Path, form: str) -> None:
    column = "pixels" if form == "named" else "image"
    rows: list[dict[str, object]] = [
        {"id": "é", column: _FORMS[form](data), "label": "ab"[i % 2]} for i, data in enumerate(_IMAGES)
    ]
    path = _write(tmp_path / "rows.jsonl", rows, form == "slashes")
    given = {"image_column": "pixels"} if form == "named" else {}
    refs, _ = refs_of(path, tmp_path / "spool", **given)
    assert [read(ref) for ref in refs] == _IMAGES
    assert [ref.key for ref in refs] == [f"rows.jsonl!{number:06d}" for number in range(1, 7)]
    assert [(ref.label, ref.size) for ref in refs] == [*zip("ababab", map(len, _IMAGES))]
    assert not (tmp_path / "spool" / "_work").exists()


def test_rows_with_other_images(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(png(7))
    images = [{"bytes": _text(_IMAGES[0])}, {"bytes": None, "path": "one.png"}, {"bytes": None},
              {"bytes": "no base64!"}, {"bytes": 7}]  # fmt: skip
    path = _write(tmp_path / "rows.jsonl", [{"image": image, "label": "a"} for image in images])
    with path.open("a") as file:
        file.write("\n{not json\n")
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [(ref.key, ref.reason) for ref in refs] == [
        ("rows.jsonl!000001", ""), ("one.png", ""), ("rows.jsonl:3", "BAD_ROW"),
        ("rows.jsonl!000004", "CORRUPT"), ("rows.jsonl!000005", "CORRUPT"), ("rows.jsonl:7", "BAD_ROW"),
    ]  # fmt: skip
    assert [read(ref) for ref in refs[:2]] == [_IMAGES[0], png(7)]


def test_long_files_are_split_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STRETCH", 500)
    rows: list[dict[str, object]] = [{"label": "a", "image": _text(data)} for data in _IMAGES * 5]
    refs, _ = refs_of(_write(tmp_path / "rows.jsonl", rows), tmp_path / "spool")
    assert [read(ref) for ref in refs] == _IMAGES * 5
    assert [ref.key[-3:] for ref in refs] == [f"{number:03d}" for number in range(1, 31)]


def test_paths_come_first(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(png(7))
    rows: list[dict[str, object]] = [{"file_name": "one.png", "image": _text(_IMAGES[0]), "label": "a"}]
    path = _write(tmp_path / "rows.jsonl", rows)
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [ref.key for ref in refs] == ["one.png"]
    refs, _ = refs_of(path, tmp_path / "spool", image_column="image")
    assert [read(ref) for ref in refs] == [_IMAGES[0]]


def test_changed_text_is_a_fault_of_one_image(tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.jsonl", [{"image": _text(_IMAGES[0]), "label": "a"}])
    refs, _ = refs_of(path, tmp_path / "spool")
    place = json.loads(refs[0].place)
    bad = refs[0]._replace(place=json.dumps([place[0], place[1] - 1, *place[2:]]))
    with pytest.raises(ImageFault):
        read(bad)
