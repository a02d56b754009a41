"""Amazon S3 and Azure Blob Storage: commands on both, and what only one of them has."""

from __future__ import annotations

import asyncio
import gzip
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import document, picture, run, run_command, sentence_of
from helpers.packing import tree_members
from helpers.repository import put_script
from helpers.storage.buckets import (
    ACCOUNT,
    KEY,
    S3,
    Bucket,
    Container,
    Owner,
    connection_string,
    read_copy,
    signature_for,
)
from helpers.storage.imitation import Imitation
from helpers.storage.scripted import Request, Response
from helpers.trees import put_files
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.core.report.index_page import write_index
from shardwright.core.storage import azure, object_store
from shardwright.loader import Records
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.version import LATEST_JSON

Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=["container", "s3"])
def owner(request: pytest.FixtureRequest) -> Owner:
    """A bucket of each of the two storages, with a small tree in `small/`."""
    made: Owner = request.getfixturevalue(request.param)
    return made


def test_convert_overwrite_and_validate_work(
    capfd: Capture, owner: Owner, small_local: Path, tmp_path: Path
) -> None:
    output, source = f"{owner.url}/out", ("--input", f"{owner.url}/small")
    argv = ("convert", *source, "--output", output, *owner.options)
    done = run(capfd, "plan", *source, *owner.options)
    assert done.code == 0, done
    owner.put_tree(small_local, "out/")
    owner.put("out/train.labels.txt", b"of a version before")
    assert "holds a dataset" in sentence_of(run(capfd, *argv), 2)
    done = run(capfd, *argv, "--shards=2", "--overwrite")
    assert done.code == 0, done
    assert owner.document("out")["fingerprint"] == document(small_local)["fingerprint"]
    # A lease that was given back stays, empty.
    assert set(owner.names("out/")) == tree_members(small_local).keys() | {"_work/lease.json"}
    assert KEY not in owner.get("out/run.json").decode()
    done = run(capfd, "validate", "--dataset", output, *owner.options)
    assert done.code == 0 and "Sound" in done.out, done
    owner.delete("out/dataset.json")
    owner.put("out/train-00001-of-00002.tfrecord", b"broken")
    assert run(capfd, *argv, "--shards=2", "--resume").code == 0
    assert json.loads(owner.get("out/_work/outcome.json"))["reused_shards"] == 1
    sheet = tmp_path / "sheet.png"
    done = run(capfd, "inspect", output, "--json", "--contact_sheet", sheet, *owner.options)
    assert done.code == 0 and json.loads(done.out)["fingerprint"] == document(small_local)["fingerprint"]
    assert sheet.stat().st_size
    FileSystems.set_options(PipelineOptions([*owner.options]))
    assert len(Records(output, "train")) == 12


@pytest.mark.sampled(1)
def test_rebuilds_publish_versions(capfd: Capture, owner: Owner) -> None:
    settings = {
        "input": f"{owner.url}/small", "output": f"{owner.url}/out", "shards": 3,
        "beam_options": [*owner.options],
    }  # fmt: skip
    places = ("--input", settings["input"], "--output", settings["output"])
    done = run(capfd, "rebuild", *places, "--shards=3", *owner.options)
    assert done.code == 0, done
    pointer = owner.get(f"out/{LATEST_JSON}")
    assert not rebuild(**settings).changed and owner.get(f"out/{LATEST_JSON}") == pointer
    owner.put("small/ant/new.png", picture(200))
    work = rebuild(**settings).outcome["work"]
    assert work == {
        "shards": 3, "reused_shards": 2, "copied": work["copied"], "converted": 1, "quarantined": 0
    }  # fmt: skip
    assert json.loads(owner.get(f"out/{LATEST_JSON}"))["previous"] == json.loads(pointer)["version"]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("place", ["bucket", "container", "s3"])
@pytest.mark.parametrize(
    "argv",
    [
        ("convert", "--input", "{url}/in", "--output", "{tmp}/out"),
        ("convert", "--input", "{url}", "--output", "{tmp}/out"),
        ("convert", "--input", "{tree}", "--output", "{url}/out"),
        ("convert", "--input", "{tree}", "--output", "{url}/out", "--overwrite"),
        ("convert", "--input", "{tree}", "--output", "{url}/out", "--resume"),
        ("plan", "--job", "{url}/job.yaml"),
        ("validate", "--dataset", "{url}/out"),
        ("validate", "--dataset", "{url}/out/*.tfrecord"),
        ("inspect", "{url}/out"),
    ],
)
def test_a_missing_bucket_is_reported(
    capfd: Capture, request: pytest.FixtureRequest, tree: Path, tmp_path: Path, place: str,
    argv: tuple[str, ...],
) -> None:  # fmt: skip
    owner: Owner = request.getfixturevalue(place)
    url = f"{owner.url.partition('://')[0]}://no-such-bucket"
    done = run(capfd, *(part.format(url=url, tmp=tmp_path, tree=tree) for part in argv), *owner.options)
    sentence = sentence_of(done, 3)
    kind = "container" if place == "container" else "bucket"
    assert f"there is no {kind} no-such-bucket; check its name or make it first." in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "server"), [(S3, "s3_server"), (Container, "azurite_server")])
def test_objects_are_copied_to_another_bucket(
    request: pytest.FixtureRequest, kind: type[S3 | Container], server: str
) -> None:
    one, other = (kind(request.getfixturevalue(server)) for _ in range(2))
    FileSystems.set_options(PipelineOptions([*one.options]))
    one.put("a", b"1")
    storage.link_files(one.url, other.url, ["a"])
    assert other.get("a") == b"1"


def test_a_browser_opens_the_pages_of_a_bucket(
    bucket: Bucket, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", FileSystems._pipeline_options)
    FileSystems.set_options(PipelineOptions([*s3.options]))
    for one in (bucket, s3):
        write_index(f"{one.url}/pets")
        storage.write_bytes(f"{one.url}/pets/diff.json", b"{}")
        assert one.kind_of("pets/index.html") == "text/html"
        assert one.kind_of("pets/diff.json") == "application/json"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bucket", "container", "s3"])
def test_the_installed_command_works_with_worker_processes(
    request: pytest.FixtureRequest, tree: Path, small_local: Path, place: str
) -> None:
    owner: Owner = request.getfixturevalue(place)
    owner.put_tree(tree, "small/")
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    places = ("--input", f"{owner.url}/small", "--output", f"{owner.url}/out")
    done = run_command("convert", *places, "--shards=2", *owner.options, *workers)
    assert done.code == 0, done
    assert owner.document("out")["fingerprint"] == document(small_local)["fingerprint"]


def test_a_missing_obstore_is_reported(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.store_for.cache_clear()
    for module in ("s3", "object_store"):
        monkeypatch.delitem(sys.modules, f"shardwright.core.storage.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    done = run(capfd, "plan", "--input", "s3://bucket/small")
    assert "s3:// needs obstore; install it with `pip install" in sentence_of(done, 2)


def test_missing_credentials_are_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_PROFILE", "empty")
    put_files(tmp_path, {".aws/config": b"[profile empty]"})
    options = ("--s3_endpoint_url=http://127.0.0.1:9", "--s3_region_name=us-east-1")
    done = run(capfd, "plan", "--input", "s3://bucket/small", *options)
    assert "there are no valid credentials for S3; run `aws configure`" in sentence_of(done, 3)
    monkeypatch.setenv("AWS_PROFILE", "pord")
    done = run(capfd, "plan", "--input", "s3://bucket/small", *options)
    assert "There is no profile pord for s3://" in sentence_of(done, 3)


def test_credentials_that_were_refused_are_asked_for_again(
    serve: Imitation, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal, hold = Response(b"<Error><Code>ExpiredToken</Code></Error>", 400), serve.holding(b"1")
    with serve.serve(lambda request: hold(request) if request.number else refusal) as served:
        with pytest.raises(EngineError, match="does not accept the credentials"):
            storage.read_bytes("s3://b/a")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "renewed")
        assert storage.read_bytes("s3://b/a") == b"1"
    assert served.requests[-1].headers["x-amz-security-token"] == "renewed"


names = st.lists(
    st.sampled_from(["/", ".", "..", "a", "%", "%2F", " ", "\x7f", "\n", "é", "#", "?", "\\", "🐝", "\x85"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)  # fmt: skip


@given(names)
@example("a//b")
@example("/a")
@example("a/")
@example("a/./b")
@example("...")
@example("")
def test_names_that_obstore_changes_are_known(name: str) -> None:
    import obstore
    from obstore.store import MemoryStore

    memory: Any = MemoryStore()
    try:
        obstore.put(memory, name, b"")
        kept = [item["path"] for page in obstore.list(memory) for item in page] == [name]
    except Exception:
        kept = False
    assert object_store.keeps_name(name) == (kept and name != "")


@pytest.fixture
def serve(imitation_of: Callable[[str], Imitation]) -> Imitation:
    """Serves scripts as S3."""
    return imitation_of("s3")


def test_tags_that_are_no_checksums_are_recognized(serve: Imitation) -> None:
    """A key of the owner gives other ETags: the same bytes twice are right, and then one read suffices."""
    tag = "0" * 32
    with serve.serve(serve.holding(b"picture", tag)) as served:
        for count in (2, 3):
            assert storage.read_bytes("s3://b/a", tag) == b"picture" and len(served.requests) == count


def test_faults_have_messages(serve: Imitation) -> None:
    answers = {
        r"does not accept the credentials .InvalidAccessKeyId.; run `aws": Response(
            b"<Error><Code>InvalidAccessKeyId</Code></Error>", 403
        ),
        "there is no bucket b; check its name": Response(b"<Error><Code>NoSuchBucket</Code></Error>", 404),
        "name the region of the bucket with --s3_region_name": Response(status=301),
    }
    for message, answer in answers.items():
        with (
            serve.serve(lambda request, answer=answer: answer),
            pytest.raises(EngineError, match=message),
        ):
            storage.read_bytes("s3://b/a")


def test_a_storage_without_conditions_is_reported(serve: Imitation) -> None:
    answer = Response(b"<Error><Code>NotImplemented</Code></Error>", 501)
    with serve.serve(lambda request: answer), pytest.raises(storage.NoConditions, match="conditional"):
        storage.write_if_match("s3://b/latest.json", b"{}", None)


def test_conflicting_writes_are_sent_again(serve: Imitation) -> None:
    conflict = Response(b"<Error><Code>ConditionalRequestConflict</Code></Error>", 409)
    hold = serve.holding(b"")
    with serve.serve(lambda request: conflict if request.number == 0 else hold(request)) as served:
        assert storage.write_if_match("s3://b/latest.json", b"{}", None) and len(served.requests) == 2


def test_a_flat_folder_is_listed_as_a_stream(serve: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first names of a folder without end are there after a few requests."""
    monkeypatch.setattr(object_store, "PAGE", 2)

    def script(request: Request) -> Response:
        number = request.number
        return Response(serve.page(f"in/{number:07}a", f"in/{number:07}b", token=f"{number}"))

    with serve.serve(script) as served:
        files, folders = storage.list_level("s3://b/in", 10)
    assert len(files) == 10 and folders is None and len(served.requests) <= 8


def test_a_notebook_can_list(serve: Imitation) -> None:
    """A notebook runs an event loop in its main thread."""
    folder = b"<CommonPrefixes><Prefix>in/ant/</Prefix></CommonPrefixes></ListBucketResult>"
    page = serve.page("in/ant/a.png").replace(b"</ListBucketResult>", folder)

    async def cell() -> list[str]:
        return storage.list_folders("s3://b/in")

    with serve.serve(lambda request: Response(page)):
        assert asyncio.run(cell()) == ["ant"]


def test_a_child_of_fork_is_refused(serve: Imitation) -> None:
    with serve.serve(serve.holding(b"1")):
        assert storage.exists("s3://b/a")
        child = multiprocessing.get_context("fork").Process(target=_read_as_child)
        child.start()
        child.join(30)
    assert child.exitcode == 0


def _read_as_child() -> None:
    with pytest.raises(EngineError, match='multiprocessing_context="forkserver"'):
        storage.read_bytes("s3://b/a")


def test_options_go_before_the_environment(serve: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve.serve(serve.holding(b"1")) as served:
        given = {"endpoint_url": os.environ["AWS_ENDPOINT_URL_S3"], "access_key_id": "mine"}
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
        given |= {"secret_access_key": "s", "session_token": "token"}
        FileSystems.set_options(PipelineOptions([f"--s3_{name}={value}" for name, value in given.items()]))
        assert storage.exists("s3://b/a")
    (request,) = served.requests
    assert "Credential=mine/" in request.headers["Authorization"]
    assert request.headers["x-amz-security-token"] == "token"


PRINTED = {"Version": 1, "AccessKeyId": "A%", "SecretAccessKey": "s", "SessionToken": "t"}


@pytest.mark.parametrize("kind", ["keys", "credential_process", "sso", "role"])
def test_credentials_come_from_a_profile(
    serve: Imitation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Amazon's command line, or the program of the profile, prints credentials that live for a while."""
    log, printed, program = tmp_path / "log", tmp_path / "printed", tmp_path / "aws"
    expiration = "2099-01-01T00:00:00" + ("" if kind == "role" else "Z")  # without a zone, it is local time
    printed.write_text(json.dumps({**PRINTED, "Expiration": expiration}))
    put_script(program, f"echo called >> {log}\ncat {printed}\n")
    lines = {
        "keys": "aws_access_key_id = A%\naws_secret_access_key = s\n",
        "credential_process": f"credential_process = {program} --with 'a space'\n",
        "sso": "sso_session = mine\n",
        "role": "aws_access_key_id = B\naws_secret_access_key = s\nsource_profile = p\nrole_arn = r\n",
    }
    (tmp_path / "credentials").write_text("[p]\n" + lines[kind])
    (tmp_path / "config").write_text("[profile p]\nregion = eu-west-3\n[default]\nregion = other\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("AWS_PROFILE", "p")
    with serve.serve(serve.holding(b"1")) as served:
        for _ in range(2):
            storage.read_bytes("s3://b/a")
    for request in served.requests:
        signature = request.headers["Authorization"]
        assert "Credential=A%/" in signature and "/eu-west-3/s3/" in signature
        assert request.headers.get("x-amz-security-token") == (None if kind == "keys" else "t")
    assert kind == "keys" or log.read_text() == "called\n"
    for wrong in ("nothing", "[]", '{"Expiration": 1}') if kind != "keys" else ():
        printed.write_text(wrong)
        storage.store_for.cache_clear()
        with serve.serve(serve.holding(b"1")), pytest.raises(EngineError, match="could not be had: `"):
            storage.read_bytes("s3://b/a")


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
    storage.store_for.cache_clear()
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
