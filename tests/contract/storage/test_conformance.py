"""What every storage must do: the disk, Google, Amazon, Microsoft, and a file system that only Beam knows."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from helpers.storage.beam_disk import DiskFileSystem
from helpers.storage.buckets import Place, read_copy
from helpers.storage.imitation import Imitation
from helpers.storage.proxy import Retries
from helpers.storage.scripted import Request, Response

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.core.storage import faults
from shardwright.schemas.errors import EngineError, ImageFault, ShardwrightError, UsageError
from shardwright.schemas.image_ref import ImageRef

assert DiskFileSystem.scheme() == "disk"  # Beam knows the schemes of all classes that exist
BODY = bytes(range(256)) * 40
MD5 = hashlib.md5(BODY).hexdigest()
PLAIN_NAMES = (
    "with space", "per%cent", "per%20cent", "hash#", "quest?ion=1&x", "plus+", "'q\"", "é", "e\u0301",
    "日本語", "🐝", "a:b", "~", "<x>|^", "...", "[x]{y}", "star*",
)  # fmt: skip


def reads_of(path: str) -> dict[str, Callable[[], bytes]]:
    """Returns all ways to read a whole file."""
    found = storage.stat(path)
    assert found is not None
    ways: dict[str, Callable[[], bytes]] = {
        "read_bytes": lambda: storage.read_bytes(path),
        "read_at_most": lambda: storage.read_bytes(path, limit=found.size),
        "read_range": lambda: storage.read_range(path, 0, found.size + 5, found.size, found.version),
        "read_head": lambda: storage.read_head(path, found.size + 5),
        "open_local": lambda: read_copy(path),
    }
    if storage.is_remote(path):
        ways["read_version"] = lambda: storage.read_bytes(path, found.version)
    return ways


@pytest.mark.parametrize("size", [0, 1, 10_240])
def test_what_is_written_is_read_listed_and_removed(place: Place, tmp_path: Path, size: int) -> None:
    data, path = BODY[:size], f"{place.url}/deep/er/a.bin"
    assert storage.stat(path) is None and not storage.exists(path) and storage.modified_at(path) is None
    storage.write_bytes(path, b"an older one")
    storage.write_bytes(path, data)
    assert place.owner.get("deep/er/a.bin") == data
    (tmp_path / "finished").write_bytes(data)
    storage.move_into_place(str(tmp_path / "finished"), f"{place.url}/deep/b.bin")
    assert place.owner.get("deep/b.bin") == data and not (tmp_path / "finished").exists()
    for name, read in reads_of(path).items():
        assert read() == data, name
    found = storage.stat(path)
    assert found is not None and (found.path, found.size) == (path, size) and storage.size_of(path) == size
    assert abs((storage.modified_at(path) or 0) - time.time()) < 10**6 or place.scheme == "gs"
    (listed,) = (item for item in storage.list_objects(place.url) if item.path == path)
    assert listed[:3] == found[:3]
    assert storage.list_files(f"{place.url}/deep//") == ["b.bin", "er/a.bin"]
    assert storage.list_files(f"{place.url}/none") == []
    storage.remove(path)
    storage.remove(path)  # is already gone
    assert storage.list_files(place.url) == ["deep/b.bin"] == place.owner.names()


def test_a_missing_file_is_not_found(place: Place) -> None:
    place.owner.put("other", b"x")
    path = f"{place.url}/none"
    reads = [
        storage.read_bytes, storage.size_of, read_copy,
        lambda path: storage.read_range(path, 0, 1), lambda path: storage.read_bytes(path, limit=10),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(FileNotFoundError):
            read(path)
    assert storage.stat(path) is None


def test_ranges_end_with_the_file(place: Place) -> None:
    place.owner.put("a", b"0123456789")
    place.owner.put("empty", b"")
    assert storage.read_range(f"{place.url}/a", 2, 3) == b"234"
    assert storage.read_range(f"{place.url}/a", 8, 10) == b"89"
    assert storage.read_range(f"{place.url}/a", 10, 10) == storage.read_range(f"{place.url}/a", 15, 1) == b""
    assert storage.read_head(f"{place.url}/empty", 10) == b""


def test_files_above_a_limit_are_not_read(place: Place) -> None:
    place.owner.put("a", BODY)
    assert storage.read_bytes(f"{place.url}/a", limit=len(BODY)) == BODY
    with pytest.raises(storage.ObjectTooLarge):
        storage.read_bytes(f"{place.url}/a", limit=len(BODY) - 1)


def test_large_files_pass_in_parts(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5 << 20  # S3 wants no smaller ones
    for module in ("store", "object_store"):
        monkeypatch.setattr(f"shardwright.core.storage.{module}.PART_BYTES", part)
    monkeypatch.setattr(storage, "PART_BYTES", part)
    data = os.urandom(2 * part + 7)
    (tmp_path / "shard").write_bytes(data)
    path = f"{place.url}/shard"
    storage.move_into_place(str(tmp_path / "shard"), path)
    assert place.owner.get("shard") == data
    for name, read in reads_of(path).items():
        assert read() == data, name


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_names_are_kept(versioned: Place, name: str) -> None:
    path = f"{versioned.url}/odd/x{name}x/{name}"
    storage.write_bytes(path, name.encode())
    assert versioned.owner.get(f"odd/x{name}x/{name}") == name.encode()
    (listed,) = storage.list_objects(f"{versioned.url}/odd/x{name}x")
    assert listed.path == path
    if storage.is_remote(path):
        assert storage.list_folders(f"{versioned.url}/odd") == [f"x{name}x"]
        storage.link_files(f"{versioned.url}/odd/x{name}x", f"{versioned.url}/copy", [name])
        assert versioned.owner.get(f"copy/{name}") == name.encode()
    for read in reads_of(path).values():
        assert read() == name.encode()
    storage.remove(path)
    assert not storage.exists(path)


@pytest.mark.parametrize("name", ["a//b", "a/./b", "a/../b", "a\tb", "/a"])
def test_names_that_a_storage_cannot_hold_are_refused(versioned: Place, name: str) -> None:
    path = f"{versioned.url}/in/{name}"
    if (versioned.scheme, name) == ("gs", "a/../b"):
        pytest.skip("the emulator answers with 503")
    if versioned.scheme in ("", "gs"):
        storage.write_bytes(path, b"1")
        for read in reads_of(path).values():
            assert read() == b"1"
        return
    with pytest.raises(UsageError, match=r"names in (s3|az):// may have no empty folders"):
        storage.write_bytes(path, b"")


def test_folders_of_a_console_are_no_files(versioned: Place) -> None:
    if versioned.scheme not in ("gs", "s3"):
        pytest.skip("this storage has no such folders")
    files = {"in/": b"", "in/ant/": b"", "in/bee/": b"", "in/ant/a.png": b"a", "in/empty": b""}
    versioned.owner.put_files(files)
    assert storage.list_files(f"{versioned.url}/in") == ["ant/a.png", "empty"]
    assert storage.list_folders(f"{versioned.url}/in") == ["ant", "bee"]


def test_one_level_is_listed_without_what_is_below(place: Place) -> None:
    names = ("in/a.jpg", "in/b/c.jpg", "in/b/d/e.jpg", "in/f.jpg", "in-other/g.jpg")
    place.owner.put_files(dict.fromkeys(names, b"x"))
    folder = f"{place.url}/in"
    assert storage.list_files(folder) == ["a.jpg", "b/c.jpg", "b/d/e.jpg", "f.jpg"]
    found = sorted(item.path for item in storage.list_objects(folder, deep=False))
    assert found == [f"{folder}/a.jpg", f"{folder}/f.jpg"]
    assert storage.list_folders(folder) == ["b"]
    assert storage.list_folders(place.url.rstrip("/")) == ["in", "in-other"]
    if storage.is_remote(folder):
        assert storage.list_level(f"{folder}//", 10) == (["a.jpg", "f.jpg"], ["b"])


def test_files_are_linked_into_another_directory(place: Place) -> None:
    files = ["a.tfrecord", "_shards/a.jsonl.gz"]
    for file in files:
        storage.write_bytes(f"{place.url}/old/{file}", file.encode())
    storage.write_bytes(f"{place.url}/new/a.tfrecord", b"of an abandoned run")
    for _ in range(2):
        storage.link_files(f"{place.url}/old", f"{place.url}/new", files)
        assert storage.list_files(f"{place.url}/new") == sorted(files)
        assert [storage.read_bytes(f"{place.url}/new/{file}").decode() for file in files] == files
    storage.remove_tree(f"{place.url}/new")
    assert storage.list_files(place.url) == sorted(f"old/{file}" for file in files)


def tag_of(path: str) -> str:
    """Returns the tag of the current content."""
    found = storage.read_with_etag(path)
    assert found is not None
    return found[1]


def test_conditional_writes_need_the_current_tag(versioned: Place) -> None:
    path = f"{versioned.url}/ü &%41#[x]*/latest@20260101T000000Z.json"
    assert storage.read_with_etag(path) is None
    assert storage.write_if_match(path, b"one", None)
    assert not storage.write_if_match(path, b"other", None)
    assert storage.write_if_match(path, b"one", None), "a repeated write recognizes its own result"
    first = tag_of(path)
    assert storage.write_if_match(path, b"two", first)
    assert storage.write_if_match(path, b"two", first)
    assert not storage.write_if_match(path, b"late", first)
    assert storage.read_with_etag(path) == (b"two", tag_of(path))
    assert storage.write_if_match(path, b"", tag_of(path))
    assert storage.read_with_etag(path) == (b"", tag_of(path))
    storage.remove(path)
    assert not storage.write_if_match(path, b"three", first)
    assert storage.read_with_etag(path) is None


def test_one_of_many_writers_is_first(versioned: Place) -> None:
    if versioned.scheme == "s3":
        pytest.skip("moto does not always obey the condition")
    path = f"{versioned.url}/latest.json"
    for turn in range(4):
        tag = tag_of(path) if turn else None
        contents = [f"{turn} {number}".encode() for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(partial(storage.write_if_match, path, tag=tag), contents))
        assert done.count(True) == 1
        assert storage.read_bytes(path) == contents[done.index(True)]


def test_a_storage_without_conditions_holds_no_versions(tmp_path: Path) -> None:
    for use in (storage.read_with_etag, lambda path: storage.write_if_match(path, b"", None)):
        with pytest.raises(UsageError, match="versions need a local disk, gs://, s3:// or az://"):
            use(f"disk://{tmp_path}/latest.json")
    storage.require_known("--output", f"disk://{tmp_path}")
    with pytest.raises(UsageError, match="there is no storage for unknown://"):
        storage.require_known("--output", "unknown://a/b")


def test_a_file_replaced_since_its_listing_stops_the_job(versioned: Place) -> None:
    versioned.owner.put("in/a.jpg", BODY)
    (listed,) = storage.list_objects(f"{versioned.url}/in")
    ref = ImageRef("a.jpg", listed.path, size=listed.size, version=listed.version, crc32c=listed.crc32c)
    assert read_image(ref, 10**6) == BODY
    time.sleep(0.01)
    versioned.owner.put("in/a.jpg", b"another")
    for read in (
        lambda: read_image(ref, 10**6),
        lambda: storage.read_range(listed.path, 0, 3, listed.size, listed.version),
    ):
        with pytest.raises(EngineError, match="changed while the job was reading"):
            read()
    storage.remove(listed.path)
    with pytest.raises(ImageFault, match="no such"):
        read_image(ref, 10**6)


# What a bad network does to it: a server plays each storage.


def ends(act: Callable[[], object]) -> str:
    """Returns the message with which an operation ends."""
    with pytest.raises(ShardwrightError) as raised:
        act()
    return raised.value.message


@pytest.mark.parametrize("fault", ["503", "429", "500", "cut", "reset", "closes", "login"])
def test_a_bad_answer_is_read_again(imitation: Imitation, fault: str) -> None:
    hold = imitation.holding(BODY)
    failed = set[str]()

    def script(request: Request) -> Response:
        answer, kind = hold(request), f"{request.method} {request.path}"
        if kind in failed:
            return answer
        failed.add(kind)
        bad = {
            "cut": answer._replace(only=max(len(answer.body) - 100, 0)),
            "reset": answer._replace(only=3),
            "closes": answer._replace(closes=True),
            "login": Response(b"<html>Please log in</html>"),
        }
        return bad[fault] if fault in bad else Response(status=int(fault))

    with imitation.serve(script):
        for read in (
            lambda: storage.read_bytes(imitation.path(), "7"),
            lambda: storage.read_bytes(imitation.path(), "7", limit=10**6),
            lambda: storage.read_range(imitation.path(), 0, len(BODY), len(BODY), "7"),
            lambda: read_copy(imitation.path()),
        ):
            failed.clear()
            assert read() == BODY and failed


def test_the_listed_version_is_required(imitation: Imitation) -> None:
    with imitation.serve(imitation.holding(BODY)) as served:
        storage.read_bytes(imitation.path(), "7")
        (request,) = served.requests
        assert request.query.get("generation") == "7" or request.headers["If-Match"] == '"7"'


def test_bytes_that_differ_from_their_checksum_are_read_again(imitation: Imitation) -> None:
    if imitation.scheme == "az":
        pytest.skip("obstore does not show Azure's checksum")
    etag, reads = {"gs": "7", "s3": MD5}[imitation.scheme], [0]
    hold = imitation.holding(BODY, etag)

    def script(request: Request) -> Response:
        answer = hold(request)
        if len(answer.body) < len(BODY):
            return answer
        reads[0] += 1
        wrong = bytes((reads[0], *answer.body[1:]))
        return answer if reads[0] > bad else answer._replace(body=wrong)

    with imitation.serve(script):
        for read in (storage.read_bytes, read_copy) if imitation.scheme == "gs" else (storage.read_bytes,):
            reads[0], bad = 0, 1
            assert read(imitation.path()) == BODY
            reads[0], bad = 0, 100
            assert "its bytes do not match its checksum, again and again" in ends(
                lambda read=read: read(imitation.path())
            )
            assert reads[0] <= 6


@pytest.mark.parametrize("response", [Response(status=503), Response(head=30.0)], ids=["busy", "silent"])
def test_every_operation_keeps_to_its_deadline(
    imitation: Imitation, monkeypatch: pytest.MonkeyPatch, response: Response
) -> None:
    monkeypatch.setattr(faults, "FIRST_PATIENCE_SECONDS", 0.5)
    bucket, path = imitation.path("")[:-1], imitation.path()
    operations: list[Callable[[], object]] = [
        lambda: storage.read_bytes(path),
        lambda: storage.read_bytes(path, "7"),
        lambda: storage.read_range(path, 5, 10, 100, "7"),
        lambda: storage.write_bytes(path, b"x" * 100_000),
        lambda: storage.write_if_match(path, b"x", None),
        lambda: list(storage.list_objects(bucket)),
        lambda: storage.list_folders(bucket),
        lambda: storage.remove(path),
        lambda: storage.link_files(bucket, f"{imitation.scheme}://c", ["a"]),
    ]
    started = time.monotonic()
    with (
        imitation.serve(lambda _: response) as served,
        ThreadPoolExecutor(1 + len(operations)) as executor,
    ):
        first = executor.submit(ends, lambda: storage.stat(path))
        while (wait := faults.longest_wait()) is None:
            time.sleep(0.01)
        assert wait[0] == path
        for message in (*executor.map(ends, operations), first.result()):
            assert message.startswith("Cannot ") and message.endswith("run again with --resume.")
            assert f"{imitation.name} " in message and "again and again" in message
    assert faults.longest_wait() is None
    assert time.monotonic() - started < 20
    assert len(served.requests) > len(operations) if response.status == 503 else served.requests


def test_a_server_that_nobody_runs_is_reported(imitation: Imitation, retries: Retries) -> None:
    retries.end_soon()
    with imitation.serve(lambda _: Response()):
        pass
    assert f"{imitation.name} does not answer" in ends(lambda: storage.stat(imitation.path()))


def test_a_slow_server_is_no_error(imitation: Imitation) -> None:
    hold = imitation.holding(BODY[:30])
    with imitation.serve(lambda request: hold(request)._replace(pause=0.003)):
        assert storage.read_bytes(imitation.path(), "7") == BODY[:30] == read_copy(imitation.path())


def test_a_dead_storage_may_come_back(imitation: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FIRST_PATIENCE_SECONDS", 0.3)
    with imitation.serve(lambda _: Response(status=503)) as served:
        assert "answers with 503 again and again" in ends(lambda: storage.stat(imitation.path()))
        served.script = imitation.holding(BODY)
        assert storage.read_bytes(imitation.path(), "7") == BODY


def test_an_object_of_5_gb_is_read_in_its_parts(imitation: Imitation, tmp_path: Path) -> None:
    size, last = 5 << 30, b"the end"

    def script(request: Request) -> Response:
        answer = imitation.holding(last)(request._replace(headers={}))
        if imitation.scheme == "gs" and "Range" not in request.headers:
            return Response(answer.body.replace(f'"{len(last)}"'.encode(), f'"{size}"'.encode()))
        place = f"bytes {size - len(last)}-{size - 1}/{size}"
        return answer._replace(status=206, headers=(*answer.headers, ("Content-Range", place)))

    with imitation.serve(script) as served:
        assert storage.read_range(imitation.path(), size - len(last), 100, size, "7") == last
        assert served.requests[-1].headers["Range"].startswith(f"bytes={size - len(last)}-")
    with open(tmp_path / "sparse", "wb") as file:
        file.seek(size - len(last))
        file.write(last)
    assert storage.read_range(str(tmp_path / "sparse"), size - len(last), 100) == last


def listed(imitation: Imitation) -> list[str]:
    """Lists the bucket `b`."""
    return [item.path.rpartition("/")[2] for item in storage.list_objects(f"{imitation.scheme}://b")]


@pytest.mark.parametrize("bad", ["html", "half", "text"])
def test_an_answer_that_is_not_a_listing_is_retried(imitation: Imitation, retries: Retries, bad: str) -> None:
    good = imitation.page("a", "b")
    response = {
        "html": Response(b"<!doctype html><html><body>Please log in<br></body></html>"),
        "half": Response(good[:-9]),
        "text": Response(b'"a"'),
    }[bad]
    with imitation.serve(lambda request: response if request.number < 2 else Response(good)):
        assert listed(imitation) == ["a", "b"]
    retries.end_soon()
    with imitation.serve(lambda request: response):
        message = ends(lambda: listed(imitation))
    assert message.startswith(f"Cannot list {imitation.scheme}://b: the answer is incomplete or not from ")


def test_a_listing_that_repeats_itself_ends(imitation: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.core.storage.store.MAX_EMPTY_PAGES", 5)
    monkeypatch.setattr("shardwright.core.storage.object_store.PAGE", 2)
    scripts: list[Callable[[Request], Response]] = [
        lambda request: Response(imitation.page("a", "b", token="more")),
        lambda request: Response(imitation.page("a", "b", token=f"token{request.number}")),
    ]
    for script in scripts:
        with imitation.serve(script) as served:
            assert "the storage sends the same page again and again" in ends(lambda: listed(imitation))
        assert len(served.requests) < 30


def test_an_object_that_is_listed_twice_counts_once(imitation: Imitation) -> None:
    pages = {"": ("a", "b", "b", "c"), "2": ("c", "d"), "3": (), "4": ("a", "e", "aa", "aa", "d", "f")}
    following = {"": "2", "2": "3", "3": "4", "4": ""}

    def script(request: Request) -> Response:
        return Response(imitation.page(*pages[request.token], token=following[request.token]))

    with imitation.serve(script):
        assert listed(imitation) == ["a", "b", "c", "d", "e", "aa", "f"]


def test_a_listing_goes_on_after_a_fault(imitation: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.core.storage.object_store.PAGE", 2)
    failed = []

    def script(request: Request) -> Response:
        if request.token and not failed:
            failed.append(request)
            return Response(status=500)
        rest = request.token or request.query.get("start-after")
        return Response(imitation.page("c") if rest else imitation.page("a", "b", token="more"))

    with imitation.serve(script):
        assert listed(imitation) == ["a", "b", "c"] and failed


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Response(status=404), FileNotFoundError, "no such object"),
        (Response(status=403), PermissionError, "permission denied"),
        (Response(status=401), EngineError, "credentials"),
        (Response(b"Bad name", 400), EngineError, "refuses it"),
    ],
    ids=["404", "403", "401", "400"],
)
def test_a_refusal_is_one_sentence_at_once(
    imitation: Imitation, answer: Response, kind: type[Exception], message: str
) -> None:
    with imitation.serve(lambda request: answer) as served:
        for read in (
            lambda: storage.read_bytes(imitation.path(), "7"),
            lambda: storage.read_range(imitation.path(), 0, 5),
        ):
            served.requests.clear()
            with pytest.raises(kind) as raised:
                read()
            assert message in str(raised.value) and len(str(raised.value)) < 700
            assert len(served.requests) <= 3, "obstore, Google's own client, and once with a new token"


def test_reads_of_many_objects_are_in_flight_at_once(imitation: Imitation) -> None:
    """A server that answers nobody before 32 have asked."""
    together = threading.Barrier(32)
    hold = imitation.holding(BODY)

    def script(request: Request) -> Response:
        together.wait(20)
        return hold(request)

    with imitation.serve(script), ThreadPoolExecutor(32) as executor:
        paths = [imitation.path(f"{number}") for number in range(32)]
        assert set(executor.map(lambda path: storage.read_bytes(path, "7"), paths)) == {BODY}
