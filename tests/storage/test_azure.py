"""Azure Blob Storage, on Azurite."""

from __future__ import annotations

import functools
import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import document, run, sentence_of
from helpers.storage.azurite import ACCOUNT, KEY, Container, connection_string

from shardwright.loader import Records
from shardwright.schemas.errors import EngineError, ImageFault, UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.images.read import read_image
from shardwright.transforms.storage import azure, quick_reads

Capture = pytest.CaptureFixture[str]
#: Names that Azurite lists; Azure also accepts control characters.
ODD = (
    "with space", "per%cent", "per%20cent", "hash#", "[x]{y}", "star*", "quest?ion=1&x", "plus+", "'quotes\"",
    "dot.", "a./b", "...", "..a", "a//b", "/lead", "é", "e\u0301", "日本語", "🐝", " a ", "a:b", "~", "<x>|^",
)  # fmt: skip


@pytest.fixture
def access(container: Container) -> Container:
    """The container, with access for functions of storage."""
    storage.use_options(PipelineOptions(list(container.options)))
    return container


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each read was quick."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    made: list[bool] = []
    read = quick_reads.QuickReader.read

    def watch(self: Any, *args: Any, **kwargs: Any) -> bytes | None:
        data = read(self, *args, **kwargs)
        made.append(data is not None)
        return data

    monkeypatch.setattr(quick_reads.QuickReader, "read", watch)
    return made


def test_convert_overwrite_and_validate_work_on_azure(
    capfd: Capture, container: Container, small_local: Path, quick: list[bool]
) -> None:
    output = f"{container.url}/out"
    argv = ("convert", "--input", f"{container.url}/small", "--output", output, *container.options)
    done = run(capfd, "plan", *argv[1:3], *container.options)
    assert done.code == 0, done
    done = run(capfd, *argv, "--shards=5")
    assert done.code == 0, done
    assert any(quick)
    assert "holds a dataset" in sentence_of(run(capfd, *argv), 2)
    done = run(capfd, *argv, "--shards=2", "--overwrite")
    assert done.code == 0, done
    assert (
        json.loads(container.get("out/dataset.json"))["fingerprint"] == document(small_local)["fingerprint"]
    )
    local = {path.relative_to(small_local).as_posix() for path in small_local.rglob("*") if path.is_file()}
    assert set(container.names("out/")) == local
    assert KEY not in container.get("out/run.json").decode()
    done = run(capfd, "validate", "--dataset", output, *container.options)
    assert done.code == 0 and "Sound" in done.out, done
    container.remove("out/dataset.json")
    container.put("out/train-00001-of-00002.tfrecord", b"broken")
    assert run(capfd, *argv, "--shards=2", "--resume").code == 0
    assert json.loads(container.get("out/_work/outcome.json"))["reused_shards"] == 1
    storage.use_options(PipelineOptions(list(container.options)))
    assert len(Records(output, "train")) == 12


def test_rebuilds_publish_versions_on_azure(capfd: Capture, container: Container) -> None:
    argv = (
        "rebuild",
        "--input",
        f"{container.url}/small",
        "--output",
        f"{container.url}/pets",
        *container.options,
    )
    assert run(capfd, *argv, "--shards=3").code == 0
    first = container.get("pets/latest.json")
    container.put("small/ant/new.png", container.get("small/ant/002.png") + b"\0")
    done = run(capfd, *argv, "--shards=3")
    assert done.code == 0, done
    assert container.get("pets/latest.json") != first
    assert container.properties("pets/latest.json").content_settings.cache_control == "no-store"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_kept(access: Container, name: str, quick: list[bool]) -> None:
    access.put(f"odd/x{name}x/{name}", name.encode())
    access.put("odd/first", b"first")
    found = {item.path: item for item in storage.list_objects(f"{access.url}/odd")}
    path = f"{access.url}/odd/x{name}x/{name}"
    assert set(found) == {path, f"{access.url}/odd/first"}
    assert storage.read_bytes(f"{access.url}/odd/first") == b"first"
    assert storage.read_version(path, found[path].version) == name.encode()
    assert quick[-1:] == [quick_reads.keeps_name(f"odd/x{name}x/{name}")]
    assert storage.read_range(path, 1, 2, len(name.encode()), found[path].version) == name.encode()[1:3]
    assert storage.stat(path) == found[path]
    storage.remove(path)
    assert not storage.exists(path)


@pytest.mark.parametrize("name", ["a\\b", "./a", "a/../b", "..", "a/."])
def test_names_that_azure_changes_are_refused(access: Container, name: str) -> None:
    access.put("b", b"another")
    access.put("a/b", b"another")
    with pytest.raises(UsageError, match="Azure does not keep names with backslashes"):
        storage.write_bytes(f"{access.url}/{name}", b"")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{access.url}/{name}")
    assert not storage.exists(f"{access.url}/{name}")


def test_large_blobs_are_sent_in_blocks(
    access: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure, "_BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(azure._sdk, "_made", (None, None))
    data = os.urandom(300_000)
    (tmp_path / "shard").write_bytes(data)
    storage.move_into_place(str(tmp_path / "shard"), f"{access.url}/shard")
    assert access.get("shard") == data and not (tmp_path / "shard").exists()
    with storage.open_local(f"{access.url}/shard") as file:
        assert file.read() == data
    found = storage.stat(f"{access.url}/shard")
    assert found is not None and azure._etag_and_md5(found.version)[1]


def test_compressed_blobs_are_unpacked_once(access: Container) -> None:
    from azure.storage.blob import ContentSettings

    packed = gzip.compress(b"picture" * 100)
    access.put("a", packed, content_settings=ContentSettings(content_encoding="gzip"))
    assert storage.read_bytes(f"{access.url}/a") == packed
    listed = next(iter(storage.list_objects(access.url + "/")))
    with storage.open_local(f"{access.url}/a") as file:
        assert file.read() == packed
    ref = ImageRef(key="a", uri=listed.path, size=listed.size, version=listed.version)
    if listed.path.endswith("/a"):
        assert read_image(ref, 10**6) == b"picture" * 100


def test_a_blob_replaced_since_its_listing_stops_the_job(access: Container) -> None:
    path = f"{access.url}/small/ant/000.jpg"
    listed = next(item for item in storage.list_objects(access.url) if item.path == path)
    ref = ImageRef(key="ant/000.jpg", uri=path, size=listed.size, version=listed.version)
    for _ in range(2):  # by the client, and quickly
        assert len(read_image(ref, 10**6)) == listed.size == storage.size_of(path)
    access.put("small/ant/000.jpg", b"another")
    with pytest.raises(EngineError, match="changed while the job was reading"):
        read_image(ref, 10**6)
    with pytest.raises(EngineError, match="changed while the job was reading"):
        storage.read_range(path, 0, 3, listed.size, listed.version)
    storage.remove(path)
    with pytest.raises(ImageFault, match="no such object"):
        read_image(ref, 10**6)


def test_ranges_end_with_the_blob(access: Container) -> None:
    access.put("a", b"0123456789")
    assert storage.read_range(f"{access.url}/a", 8, 10) == b"89"
    assert storage.read_range(f"{access.url}/a", 10, 10) == b""
    access.put("empty", b"")
    assert storage.read_bytes(f"{access.url}/empty") == b""
    assert storage.read_head(f"{access.url}/empty", 10) == b""


def test_folders_of_a_hierarchical_namespace_are_no_blobs(access: Container) -> None:
    access.put("in/ant", b"", metadata={"hdi_isfolder": "true"})
    access.put("in/ant/a.png", b"a")
    access.put("in/bee/", b"")
    assert [item.path for item in storage.list_objects(f"{access.url}/in")] == [f"{access.url}/in/ant/a.png"]
    assert storage.list_folders(f"{access.url}/in") == ["ant", "bee"]
    assert not storage.exists(f"{access.url}/in/ant")


@pytest.mark.parametrize(
    "argv",
    [
        ("convert", "--input", "az://no-such-container/in", "--output", "{out}"),
        ("convert", "--input", "{tree}", "--output", "az://no-such-container/out"),
        ("validate", "--dataset", "az://no-such-container/out"),
    ],
)
def test_a_missing_container_is_reported(
    capfd: Capture, container: Container, tree: Path, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    done = run(capfd, *(part.format(out=tmp_path / "out", tree=tree) for part in argv), *container.options)
    assert "there is no container no-such-container" in sentence_of(done, 3)
    assert not (tmp_path / "out").exists()


def test_wrong_access_is_reported(
    capfd: Capture, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("plan", "--input", f"{container.url}/small")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    assert "No storage account is named for az://" in sentence_of(run(capfd, *argv), 3)
    assert "connection string for az:// is malformed" in sentence_of(
        run(capfd, *argv, "--azure_connection_string=nonsense"), 3
    )
    assert "az:// names no container" in sentence_of(run(capfd, "plan", "--input", "az://"), 2)
    wrong = container.options[0].replace(KEY, KEY[::-1].replace("=", "A") + "==")
    message = sentence_of(run(capfd, *argv, wrong.replace("A==", "==")), 3)
    assert "permission denied" in message or "does not accept the credentials" in message


@pytest.mark.parametrize("way", ["connection string", "account key", "signature", "signature in the URL"])
def test_credentials_of_the_environment(
    container: Container, way: str, azurite_server: str, monkeypatch: pytest.MonkeyPatch, quick: list[bool]
) -> None:
    from datetime import UTC, datetime, timedelta

    from apache_beam.io.filesystems import FileSystems
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    monkeypatch.setattr(azure._sdk, "_made", (None, None))
    signature = generate_container_sas(
        ACCOUNT, container.name, KEY, permission=ContainerSasPermissions(True, True, True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )  # fmt: skip
    endpoint = f"{azurite_server}/{ACCOUNT}"
    for name, value in {
        "connection string": {"AZURE_STORAGE_CONNECTION_STRING": connection_string(azurite_server)},
        "account key": {
            "AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY
        },
        "signature": {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_SAS_TOKEN": f"?{signature}"},
        "signature in the URL": {"AZURE_STORAGE_ENDPOINT": f"{endpoint}?{signature}"},
    }[way].items():  # fmt: skip
        monkeypatch.setenv(name, value)
    items = list(storage.list_objects(f"{container.url}/small"))
    for item in items:
        assert len(storage.read_version(item.path, item.version)) == item.size
    assert quick == [True] * (len(items) - 1) and items
    storage.write_bytes(f"{container.url}/out/a", b"a")
    storage.copy_files(f"{container.url}/out", f"{container.url}/copy", ["a"])
    assert container.get("copy/a") == b"a"


def test_obstore_uses_the_credential_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    made: list[dict[str, Any]] = []

    def store(container: str, **settings: Any) -> Any:
        made.append(settings)
        return SimpleNamespace()

    class Credential:
        def get_token(self, scope: str) -> Any:
            assert scope == "https://storage.azure.com/.default"
            return SimpleNamespace(token="secret", expires_on=1_800_000_000)

    monkeypatch.setattr("obstore.store.AzureStore", store)
    for name in azure._CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    client = SimpleNamespace(
        url="https://pets.blob.core.windows.net/", account_name="pets", credential=Credential()
    )
    assert azure._quick_reader(client, "c") is not None
    assert made[0]["endpoint"] == "https://pets.blob.core.windows.net" and made[0]["account_name"] == "pets"
    token = made[0]["credential_provider"]()
    assert token["token"] == "secret" and token["expires_at"].timestamp() == 1_800_000_000
    client.credential = None
    assert azure._quick_reader(client, "c") is None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/own.pem")
    client.credential = Credential()
    assert azure._quick_reader(client, "c") is None


def test_one_of_many_writers_is_first(access: Container) -> None:
    path = f"{access.url}/latest.json"
    for turn in range(3):
        found = storage.read_with_etag(path)
        contents = [f"{turn} {number}".encode() for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            write = functools.partial(storage.write_if_match, path, tag=found and found[1])
            done = list(pool.map(write, contents))
        assert done.count(True) == 1
        assert storage.read_bytes(path) == contents[done.index(True)]
