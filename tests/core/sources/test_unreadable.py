"""Bad images: faults whatever source lists them, and equal ledgers in every process."""

from __future__ import annotations

import base64
import gzip
import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.annotation_sets import labelme
from helpers.hostile import document, picture, run
from helpers.listing import Listed, listed, put_photos
from helpers.manifests import write_csv
from helpers.mutants import mutants
from helpers.packing import tar_of, zip_of
from helpers.records import quarantine
from helpers.trees import put_files
from PIL import Image

from shardwright.core.concurrency.worker_pool import call_in_process
from shardwright.schemas.ledger import Entry

PSD = b"8BPS\0\1" + bytes(range(200))
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
#: Names below a class, contents, and their outcomes in folders and archives.
FILES: Mapping[str, tuple[bytes, str]] = {
    "1.psd": (PSD, "UNSUPPORTED_FORMAT"),
    "2.jpg": (PSD, "UNSUPPORTED_FORMAT"),
    "3": (PSD, "UNSUPPORTED_FORMAT"),
    "4.tga": (b"\0\0\2\0" + bytes(200), "UNSUPPORTED_FORMAT"),
    "5.NEF": (b"II*\0\x08\0\0\0\0\0", "UNSUPPORTED_FORMAT"),
    "6.svg": (SVG, "UNSUPPORTED_FORMAT"),
    "7.psd": (b"<html>404</html>", "NOT_AN_IMAGE"),
    "8.psd": (b"", "EMPTY_FILE"),
    "9.psd": (picture(50, "JPEG"), "written"),
    "10.jpg": (b"plain words", "NOT_AN_IMAGE"),
    "11.mp4": (b"\0\0\0\x18ftypmp42", "not_an_image"),
    "12.txt": (b"plain words", "not_an_image"),
    "13": (b"", "not_an_image"),
}


#: The same in one class, and a sound image in another.
TREE = {f"ant/{name}": data for name, (data, _) in FILES.items()} | {"bee/1.png": picture(1)}


def outcomes_of(found: Listed) -> dict[str, str]:
    """Returns key -> outcome, or the reason why it is left out."""
    return {key: str(entry.reason or entry.outcome) for key, entry in found.entries().items()}


def test_a_class_with_only_psd_is_counted(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    put_files(tmp_path / "in", {f"ant/{i}.psd": PSD for i in range(4)})
    put_files(tmp_path / "in", {f"bee/{i}.png": picture(i) for i in range(4)})
    argv = ("convert", "--input", tmp_path / "in", "--output", tmp_path / "out", "--verify=none")
    done = run(capfd, *argv)
    assert done.code == 1
    assert "4 of 8 images are bad (4 UNSUPPORTED_FORMAT), more than --max_bad_fraction 0.01" in done.err
    assert "convert (to JPEG or PNG)" in done.err and "--max_bad_fraction 0.5" in done.err
    lines = quarantine(tmp_path / "out")
    assert [*lines] == [f"ant/{i}.psd" for i in range(4)]
    (message,) = {line["message"] for line in lines.values()}
    assert "it is psd, a format that is not read" in message
    done = run(capfd, *argv, "--max_bad_fraction=0.5", "--resume")
    assert done.code == 0, done
    made = document(tmp_path / "out")
    assert made["labels"] == ["ant", "bee"] and made["ledger"]["quarantined"] == 4
    assert made["ledger"]["filtered"] == 0
    done = run(capfd, "plan", "--input", tmp_path / "in")
    shown = done.out + done.err
    assert done.code == 0 and "4 entries of the input are left out as UNSUPPORTED_FORMAT" in shown
    assert shown.count("it is psd") == 3, "some of them are named"


def test_unsupported_images_in_folders_archives_and_manifests_are_faults(tmp_path: Path) -> None:
    folder = put_files(tmp_path / "in", TREE)
    for name in ("gone.psd", "gone"):
        (folder / "ant" / name).symlink_to("nowhere")
    put_files(tmp_path, {"a.zip": zip_of(TREE), "a.tar": tar_of(TREE)})
    write_csv(tmp_path / "rows.csv", [("image", "label"), *((f"in/{key}", key[:3]) for key in TREE)])
    expected = {f"ant/{name}": outcome for name, (_, outcome) in FILES.items()} | {"bee/1.png": "written"}
    gone = {"ant/gone.psd": "UNREADABLE", "ant/gone": "not_an_image"}
    # A manifest states that each of its rows is an image.
    of_rows = {"ant/11.mp4": "NOT_AN_IMAGE", "ant/12.txt": "NOT_AN_IMAGE", "ant/13": "EMPTY_FILE"}
    for path, prefix, outcomes in (
        (folder, "", expected | gone),
        (tmp_path / "a.zip", "a.zip!", expected),
        (tmp_path / "a.tar", "a.tar!", expected),
        (tmp_path / "rows.csv", "in/", expected | of_rows),
    ):
        found = listed(path, "classification")
        assert outcomes_of(found) == {prefix + key: outcome for key, outcome in outcomes.items()}
        bad = [entry for entry in found.entries().values() if entry.outcome == "quarantined"]
        assert all(entry.label == "ant" and entry.message for entry in bad)


def test_unsupported_images_in_webdataset_are_faults(tmp_path: Path) -> None:
    members = {"1.cls": b"0", "1.png": picture(1), "2.cls": b"1", "2.psd": PSD, "3.svg": SVG, "3.cls": b"0"}
    # The last file belongs to no sample.
    put_files(tmp_path / "in", {"a-0.tar": tar_of(members), "logo.svg": SVG})
    found = listed(tmp_path / "in", "classification")
    assert outcomes_of(found) == {
        "a-0.tar!1.png": "written", "a-0.tar!2.psd": "UNSUPPORTED_FORMAT",
        "a-0.tar!3.svg": "UNSUPPORTED_FORMAT", "logo.svg": "not_listed",
    }  # fmt: skip
    assert found.ids == {"0": 0, "1": 1}


def test_a_webdataset_with_only_psd_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"1.cls": b"0", "1.psd": PSD}))
    found = listed(tmp_path / "a.tar", layout="classification")
    assert found.input.source == "webdataset" and found.refs.keys() == {"a.tar!1.psd"} and not found.reasons()


def test_an_unsupported_image_and_its_mask_are_counted_once(tmp_path: Path) -> None:
    put_files(tmp_path, dict.fromkeys(["in/1.png", "masks/1.png", "masks/2.png"], picture(1)))
    put_files(tmp_path, {"in/2.psd": PSD})
    found = listed(tmp_path / "in", layout="segmentation", mask_dir=tmp_path / "masks")
    assert found.refs.keys() == {"1.png", "2.psd"} and found.reasons() == {"2.psd": "UNSUPPORTED_FORMAT"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission_are_faults(tmp_path: Path) -> None:
    source = put_files(tmp_path / "in", TREE)
    for name in ("1.psd", "3"):
        (source / "ant" / name).chmod(0)
    found = outcomes_of(listed(source, "classification"))
    assert found["ant/1.psd"] == "UNREADABLE" and found["ant/3"] == "not_an_image"


def _put_masks(root: Path) -> None:
    """Writes LabelMe files whose masks are no pictures, or damaged ones."""
    header = b"\x89PNG\r\n\x1a\n"
    masks = (b"no picture", picture(1)[:60], header + b"x" * 40, header)
    photos = put_photos(root)
    for photo, mask in zip(photos, masks, strict=True):
        drawn = labelme.shape("cat", "mask", (1, 1), (9, 9), mask=base64.b64encode(mask).decode())
        labelme.save(root / f"{Path(photo.name).stem}.json", labelme.document(photo, shapes=[drawn]))
    for photo in put_photos(root, ["rose"]):
        labelme.save(root / "rose.json", labelme.document(photo))


def _put_files(root: Path) -> None:
    """Writes damaged pictures of many formats, and a damaged archive of them."""
    colors = Image.effect_noise((40, 30), 60).convert("RGB")
    files = {"good/1.png": picture(1)}
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "PPM", "JPEG2000", "AVIF", "TIFF"):
        buffer = io.BytesIO()
        colors.save(buffer, kind)
        for number, damaged in enumerate(mutants(buffer.getvalue(), 4)):
            files[f"bad/{number}.{kind.lower()}"] = damaged
    put_files(root / "files", files)
    packed = gzip.compress(tar_of(files), mtime=0)
    (root / "packed.tar.gz").write_bytes(packed[: len(packed) * 2 // 3])


def made_of(path: str, layout: str) -> dict[str, tuple[Entry, bytes]]:
    """Lists and converts an input; returns key -> ledger entry and record."""
    found = listed(path, layout, "spool").converted().items()
    return {key: (item.entry, item.example) for key, item in found}


def test_ledgers_are_equal_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_masks(tmp_path / "here" / "masks")
    _put_files(tmp_path / "here")
    (tmp_path / "here" / "spool").mkdir()
    shutil.copytree(tmp_path / "here", tmp_path / "there")  # with the times of the files
    layouts = {"masks": "detection", "files": "classification", "packed.tar.gz": "classification"}
    for path, layout in layouts.items():
        monkeypatch.chdir(tmp_path / "here")
        here = made_of(path, layout)
        monkeypatch.chdir(tmp_path / "there")
        assert call_in_process(made_of, path, layout, crashed=str) == here
        messages = [entry.message for entry, _ in here.values() if entry.outcome == "quarantined"]
        assert messages and not any(" at 0x" in message for message in messages)
