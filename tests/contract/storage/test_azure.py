"""Azure Blob Storage, on Azurite."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import run, sentence_of
from helpers.storage.buckets import ACCOUNT, KEY, Container, connection_string, read_copy, signature_for

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.core.storage import azure
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def access(container: Container) -> Container:
    """The container, with access for functions of storage."""
    FileSystems.set_options(PipelineOptions(list(container.options)))
    return container


@pytest.mark.parametrize("name", ["a\\b", "../a\\b"])
def test_names_that_azure_changes_are_refused(access: Container, name: str) -> None:
    for use in (storage.read_bytes, lambda path: storage.write_bytes(path, b"")):
        with pytest.raises(UsageError, match="no backslashes, and no control characters"):
            use(f"{access.url}/{name}")


def test_compressed_blobs_are_unpacked_once(access: Container) -> None:
    packed = gzip.compress(b"picture" * 100)
    access.put("a", packed, **{"Content-Encoding": "gzip"})
    assert storage.read_bytes(f"{access.url}/a") == packed
    listed = next(iter(storage.list_objects(access.url + "/")))
    assert read_copy(f"{access.url}/a") == packed
    ref = ImageRef(key="a", uri=listed.path, size=listed.size, version=listed.version)
    if listed.path.endswith("/a"):
        assert read_image(ref, 10**6) == b"picture" * 100


def test_folders_of_a_hierarchical_namespace_are_no_blobs(access: Container) -> None:
    access.put("in/ant", b"", hdi_isfolder="true")
    access.put("in/ant/a.png", b"a")
    assert [item.path for item in storage.list_objects(f"{access.url}/in")] == [f"{access.url}/in/ant/a.png"]
    assert storage.list_folders(f"{access.url}/in") == ["ant"]
    assert not storage.exists(f"{access.url}/in/ant")


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
    wrong = container.options[0].replace(KEY, KEY.replace("Eby8", "Eby9"))
    message = sentence_of(run(capfd, *argv, wrong), 3)
    assert "permission denied" in message or "does not accept the credentials" in message
    malformed = container.options[0].replace(KEY, "A" + KEY)
    assert "Cannot use az://" in sentence_of(run(capfd, *argv, malformed), 3)


@pytest.mark.parametrize("way", ["connection string", "account key", "signature", "signature in the URL"])
def test_credentials_of_the_environment(
    container: Container, way: str, azurite_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    storage._store_for.cache_clear()
    signature = signature_for(container.name)
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
        assert len(storage.read_bytes(item.path, item.version)) == item.size
    assert items
    storage.write_bytes(f"{container.url}/out/a", b"a")
    storage.link_files(f"{container.url}/out", f"{container.url}/copy", ["a"])
    assert container.get("copy/a") == b"a"


_PETS = "https://pets.blob.core.windows.net"
_CONNECTION = "DefaultEndpointsProtocol=https;AccountName=pets;AccountKey=a2V5Cg==;EndpointSuffix=x.net"


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"AZURE_STORAGE_KEY": "a2V5"}, {"account_key": "a2V5"}),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=2"}, {"sas_key": "sv=1&sig=2"}),
        ({"AZURE_STORAGE_ENDPOINT": f"{_PETS}/?sv=1", "AZURE_STORAGE_ACCOUNT": ""}, {"sas_key": "sv=1"}),
        ({"AZURE_CLIENT_SECRET": "s"}, {}),
        ({}, {"use_azure_cli": "true"}),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": _CONNECTION},
            {"account_key": "a2V5Cg==", "endpoint": "https://pets.blob.x.net"},
        ),
    ],
)
def test_the_address_and_the_login_are_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], settings: dict[str, object]
) -> None:
    """Obstore finds identities itself, but must be told to ask the command line of Azure."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "az").write_text("")
    (tmp_path / "az").chmod(0o755)
    (tmp_path / "azureProfile.json").write_text("{}")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path))
    for name, value in {"AZURE_STORAGE_ACCOUNT": "pets", **given}.items():
        monkeypatch.setenv(name, value)
    expected = {"container_name": "c", "account_name": "pets", "endpoint": _PETS, **settings}
    assert azure.AzureStore().connect({}).open("c").config == expected
