"""Objects with odd names give the same keys and ledgers as files on a local disk."""

from __future__ import annotations

import gzip
import unicodedata
from pathlib import Path

import pytest
from helpers.hostile import picture, refused, run, sentence_of
from helpers.listing import listed
from helpers.packing import list_refs, tree_members
from helpers.storage.buckets import Bucket
from helpers.storage.imitation import Imitation
from helpers.storage.proxy import Fault, Proxy
from helpers.storage.scripted import Response
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.schemas.errors import EngineError

Capture = pytest.CaptureFixture[str]
ODD = (
    "ant/with space.png", "ant/per%cent%20.png", "ant/hash#.png", "ant/quest?ion=1&x.png", "ant/[x]{y}.png",
    "ant/star*.png", "ant/plus+.png", "ant/'quotes\".png", "ant/back\\slash.png", "ant/new\nline.png",
    "bee/" + unicodedata.normalize("NFC", "é.png"), "bee/日本語.png", "bee/🐝.png", "bee/tab\t.png",
    "bee/" + "x" * 240 + ".png", "bee/deep/er/still.png", "bee/...png", "x y/1.png", "[c]/1.png",
)  # fmt: skip

#: The first bytes of a photo from a phone.
PSD = b"8BPS\0\1" + bytes(200)


def test_odd_names_give_the_same_keys_as_on_a_disk(bucket: Bucket, tmp_path: Path) -> None:
    files = {name: picture(number) for number, name in enumerate(ODD)}
    files |= {
        "bee/image-without-suffix": picture(100),
        "bee/text-without-suffix": b"hello",
        "bee/photo.psd": PSD,
        "bee/photo": PSD,
        "bee/renamed.psd": picture(104, "JPEG"),
        "bee/notes.txt": b"hello",
        "bee/.hidden.png": picture(101),
        ".folder/1.png": picture(102),
        "bee/empty.png": b"",
        "bee/empty": b"",
        "top.png": picture(103),
        "readme.md": b"# hello",
    }
    bucket.put_tree(put_files(tmp_path / "in", files), "in/")
    bucket.put_files(dict.fromkeys(("in/", "in/ant/", "in/bee/deep/"), b""))  # placeholders of a console
    found = outcomes(f"{bucket.url}/in")
    assert found == outcomes(tmp_path / "in")
    reasons = {key: reason for key, (reason, *_) in found.items()}
    assert found["top.png"][1] == "", "it has no class"
    assert reasons["bee/empty.png"] == "EMPTY_FILE"
    assert reasons["bee/photo.psd"] == reasons["bee/photo"] == "UNSUPPORTED_FORMAT"
    assert reasons["bee/image-without-suffix"] == reasons["bee/renamed.psd"] == ""
    assert reasons["bee/text-without-suffix"] == "not_an_image"


def outcomes(path: Path | str) -> dict[str, tuple[str, str, str]]:
    """Returns key -> why the image is left out, or nothing; its class; and the sha256 of its bytes."""
    entries = listed(path, "classification").entries()
    return {key: (entry.reason, entry.label, entry.sha256) for key, entry in entries.items()}


def test_names_that_a_disk_cannot_have_are_handled(bucket: Bucket) -> None:
    long = "ant/" + "y" * 900 + ".png"
    names = ("/1.png", "ant//2.png", "//3.png", long, "ant/./4.png")
    bucket.put_files({name: picture(number) for number, name in enumerate(names)}, "in/")
    found = outcomes(f"{bucket.url}/in")
    assert len(found) == len(names) and found["ant//2.png"][0] == found[long][0] == ""


def test_objects_whose_names_are_too_long_do_not_exist(imitation: Imitation) -> None:
    held = imitation.holding(b"x")
    too_long = imitation.path("x" * 1025)
    with imitation.serve(lambda sent: Response(b"", 400) if len(sent.path) > 1000 else held(sent)):
        assert storage.stat(imitation.path()) and storage.stat(too_long) is None
        with pytest.raises(FileNotFoundError):
            storage.read_bytes(too_long)
        with pytest.raises(EngineError):  # other refusals still end the command
            storage.stat(imitation.path("x" * 1024))


def test_names_that_are_equal_in_unicode_are_a_duplicate_key(
    capfd: Capture, bucket: Bucket, tmp_path: Path
) -> None:
    for form in ("NFC", "NFD"):
        bucket.put("in/ant/" + unicodedata.normalize(form, "é.png"), picture(len(form)))
    done = run(capfd, "convert", "--input", f"{bucket.url}/in", "--output", tmp_path / "out")
    sentence = sentence_of(done, 2)
    assert "Two images have the key 'ant/é.png'" in sentence and "only in their Unicode form" in sentence


def test_objects_stored_compressed_give_the_same_records(bucket: Bucket, tree: Path) -> None:
    for name, data in tree_members(tree, "in/").items():
        bucket.put(name, gzip.compress(data), encoding="gzip")
    assert outcomes(f"{bucket.url}/in") == outcomes(tree)


@pytest.mark.parametrize(
    ("source", "output", "what"),
    [
        ("in", "in/out", "--output"),
        ("in/deep", "in", "--input"),
        ("", "out", "--output"),
        ("in", "in/", "--output"),
    ],
)
def test_inputs_and_outputs_inside_each_other_are_refused(
    capfd: Capture, bucket: Bucket, tmp_path: Path, source: str, output: str, what: str
) -> None:
    bucket.put("in/deep/ant/1.png", picture(1))
    argv = ("convert", "--input", f"{bucket.url}/{source}", "--output", f"{bucket.url}/{output}")
    sentence = refused(capfd, tmp_path, *argv)
    assert sentence.startswith(what) and "lies inside" in sentence
    assert bucket.names() == ["in/deep/ant/1.png"]


@pytest.mark.parametrize(
    ("path", "what"),
    [("none", "does not exist: there is no such object"), ("in/ant/1.png", "no source recognizes this file")],
)
def test_wrong_inputs_are_refused(
    capfd: Capture, bucket: Bucket, tmp_path: Path, path: str, what: str
) -> None:
    bucket.put("in/ant/1.png", picture(1))
    argv = ("convert", "--input", f"{bucket.url}/{path}", "--output", tmp_path / "out")
    assert what in refused(capfd, tmp_path, *argv)


def test_many_objects_are_probed_at_once(bucket: Bucket, proxy: Proxy) -> None:
    for number in range(40):
        bucket.put(f"in/ant/{number}", picture(number) if number % 2 else b"text")

    with proxy.watch(lambda request: Fault("delay", 0.05) if request.ranged else None):
        reasons = [ref.reason for ref in list_refs(f"{bucket.url}/in", "class_folders")]
    assert proxy.counts()["media"] == 40 and proxy.max_in_flight["media"] >= 12
    assert reasons.count("") == reasons.count("not_an_image") == 20
