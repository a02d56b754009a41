"""`--dedupe near` keeps the largest of images that look alike; equal bytes in two classes are reported."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.from_nothing import begin, entries_of, unchanged, work
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from shardwright.core.conversion import ShardRecipe, fingerprint, fingerprint_read, read_ref
from shardwright.core.images.near_duplicates import alike
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.dedupe_near import (
    Row,
    bucketed_fingerprints,
    find_shared,
    join_groups,
)

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
RANKED = st.tuples(st.integers(-3, 0), st.sampled_from("abcdefgh"))


def photo(name: str) -> Image.Image:
    return Image.open(PHOTOS / name).convert("RGB")


def put(path: Path, image: Image.Image, quality: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=quality)


def copies_of(dataset: Path) -> dict[str, str]:
    """Returns key of a copy -> key of the image that was kept."""
    return {key: e.reason for key, e in entries_of(dataset).items() if e.outcome == "deduplicated"}


def test_the_largest_of_similar_images_is_kept_and_no_group_is_in_two_splits(tmp_path: Path) -> None:
    eagle, house = photo("birds/eagle.jpg"), photo("buildings/house.jpg")
    small = eagle.resize((eagle.width // 2, eagle.height // 2), Image.Resampling.LANCZOS)
    source = tmp_path / "in"
    put(source / "train" / "birds" / "b-small.jpg", small)
    put(source / "train" / "birds" / "c-bright.jpg", ImageEnhance.Brightness(small).enhance(1.04), 60)
    put(source / "test" / "birds" / "a-large.png", eagle)
    put(source / "train" / "houses" / "same-1.jpg", house)
    put(source / "test" / "houses" / "same-2.jpg", house)
    put(source / "test" / "houses" / "other.jpg", photo("buildings/library.jpg"))
    values = {"input": str(source), "resize": "96", "verify": "none"}
    plain = convert(output=str(tmp_path / "plain"), **values)
    leaks = validate(plain.path, mode="quality").counts[FindingCode.SPLIT_LEAKAGE]
    result = convert(output=str(tmp_path / "out"), dedupe="near", **values)
    assert copies_of(tmp_path / "out") == {
        "train/birds/b-small.jpg": "test/birds/a-large.png",
        "train/birds/c-bright.jpg": "test/birds/a-large.png",
        "train/houses/same-1.jpg": "test/houses/same-2.jpg",
    }
    ledger = result.dataset.ledger
    assert (ledger["listed"], ledger["written"], ledger["deduplicated"]) == (6, 3, 3)
    after = validate(result.path, mode="quality", against=[str(source)])
    assert leaks >= 3 and not after.errors
    assert not {FindingCode.SPLIT_LEAKAGE, FindingCode.NEAR_DUPLICATE} & after.counts.keys()


@pytest.mark.slow
def test_rebuilds_keep_the_present_largest(tmp_path: Path) -> None:
    eagle = photo("birds/eagle.jpg")
    for number, side in enumerate((100, 140)):
        put(tmp_path / "in" / "a" / f"{number}.jpg", eagle.resize((side, side)))
    for name in ("house", "library", "factory"):
        put(tmp_path / "in" / "b" / f"{name}.jpg", photo(f"buildings/{name}.jpg").resize((120, 120)))
    rebuilt = begin(tmp_path, dedupe="near", splits="train=0.5,test=0.5")
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/1.jpg"}
    assert unchanged(rebuilt)
    put(tmp_path / "in" / "a" / "9.jpg", eagle.resize((180, 180)))
    assert work(rebuilt)[2] == 1
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/9.jpg", "a/1.jpg": "a/9.jpg"}
    (tmp_path / "in" / "a" / "9.jpg").unlink()
    assert work(rebuilt)[2] == 1
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/1.jpg"}
    # What the conversion leaves out cannot be kept in favor of another.
    assert work(rebuilt, exclude="a/1.jpg")[2] == 1
    assert copies_of(rebuilt.latest) == {}


def test_images_that_will_be_left_out_have_no_fingerprint(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", photo("birds/eagle.jpg").resize((100, 40)))
    (tmp_path / "bad.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-200])
    flat = Image.new("RGB", (64, 64), (90, 140, 200))
    put(tmp_path / "flat.png", flat)

    def seen(name: str, **values: object) -> object:
        settings = ConvertSettings(input=("in",), **values)  # type: ignore[arg-type]
        recipe = ShardRecipe(settings, settings.record_layout, {})
        return fingerprint_read(settings, read_ref(ImageRef(name, str(tmp_path / name)), recipe))

    assert seen("a.jpg") and seen("flat.png", drop="DARK")
    assert seen("a.jpg", min_side=41) is seen("a.jpg", max_aspect=2) is seen("a.jpg", min_bytes="1MB") is None
    assert seen("bad.jpg") is seen("gone.jpg") is seen("flat.png", drop="LOW_INFORMATION") is None


def test_reduced_decoding_gives_nearly_the_same_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    put(path, photo("birds/penguin.jpg").resize((1600, 1160)))
    put(tmp_path / "large.png", Image.open(path))
    settings = ConvertSettings(input=("in",))
    reduced, whole = (
        fingerprint((tmp_path / name).read_bytes(), name, settings) for name in ("large.jpg", "large.png")
    )
    assert reduced.pixels == whole.pixels == 1600 * 1160
    [(first, second, _)] = alike([reduced.hash, whole.hash], [reduced.patch, whole.patch])
    assert (first, second) == (0, 1)


@given(st.lists(st.tuples(RANKED, RANKED), max_size=20), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_pairs(pairs: list, order: random.Random) -> None:  # type: ignore[type-arg]
    joined = join_groups(pairs)
    members = {item for pair in pairs for item in pair}
    # Oracle: spread the best name along all pairs until nothing changes.
    best = {item: item for item in members}
    for _ in members:
        for first, second in pairs:
            best[first] = best[second] = min(best[first], best[second])
    assert joined == {item: found for item, found in best.items() if found != item}
    shuffled = [pair[:: order.choice((1, -1))] for pair in pairs]
    order.shuffle(shuffled)
    assert join_groups(shuffled) == joined


def test_similar_images_are_all_pairs_of_a_small_bucket_and_connect_a_large_one() -> None:
    settings = ConvertSettings(input=("in",))
    eagle = photo("birds/eagle.jpg").resize((96, 96))
    rng = random.Random(1)

    def seen(image: Image.Image) -> tuple[bytes, bytes]:
        out = io.BytesIO()
        image.save(out, "png")
        return fingerprint(out.getvalue(), "x.png", settings)[1:]

    similar = [seen(ImageEnhance.Brightness(eagle).enhance(1 + step / 100)) for step in range(5)]
    hashes, patches = zip(*similar)
    assert {pair[:2] for pair in alike(hashes, patches)} == set(itertools.combinations(range(5), 2))
    many = [rng.choice(similar) for _ in range(400)]
    hashes, patches = zip(*many)
    joined = join_groups(((0, str(first)), (0, str(second))) for first, second, _ in alike(hashes, patches))
    assert len(joined) == 399 and len(set(joined.values())) == 1


def test_only_rows_that_share_a_band_are_compared() -> None:
    row, other = Row("a", 1, bytes(32), bytes(288)), Row("b", 1, bytes([255] * 32), bytes([255] * 288))
    found = [*bucketed_fingerprints(b"1", [row, other]), *bucketed_fingerprints(b"2", [row])]
    buckets: dict[int, list[bytes]] = {}
    for bucket, packed in found:
        buckets.setdefault(bucket, []).append(packed)
    shared = [item for bucket in buckets.items() for item in find_shared(bucket)]
    found_places = [pickle.loads(packed) for _, packed in shared]
    places = [(name, place) for name, items in found_places for place, _ in items]
    assert set(places) == {(b"1", 0), (b"2", 0)} and len(places) == 12


SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of two classes; one dog is also a cat, and another one is in both splits."""
    root = tmp_path_factory.mktemp("pictures")
    for split in SPLITS:
        for number in range(8):
            path = root / split / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(number + 100 * len(split)).integers(0, 255, (9, 9, 3), np.uint8)
            Image.fromarray(pixels).save(path)
    shutil.copy(root / "train/dog/1.png", root / "train/cat/x.png")
    shutil.copy(root / "train/dog/3.png", root / "test/dog/y.png")
    return root


def made(folder: Path, output: Path, **settings: object) -> ConvertResult:
    return convert(input=str(folder), output=str(output), shards=2, **settings)


COUNTS = {"LABEL_CONFLICT": 1, "SPLIT_LEAKAGE": 1}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["none", "fast", "full"])
def test_convert_reports_them_at_every_verification(folder: Path, tmp_path: Path, verify: str) -> None:
    result = made(folder, tmp_path / "out", verify=verify)
    assert result.findings == COUNTS
    warnings = [text for text in result.outcome["warnings"] if "LABEL_CONFLICT" in text]
    assert len(warnings) == 1 and "dog/1.png" in warnings[0] and "of class" in warnings[0]
    stored = json.loads((tmp_path / "out" / "findings.json").read_text())
    assert (stored["counts"], stored["warnings"], stored["sound"]) == (
        COUNTS,
        2,
        None if verify == "none" else True,
    )
    conflict = next(one for one in stored["findings"] if one["code"] == "LABEL_CONFLICT")
    assert conflict["severity"] == "warning"
    keys = {conflict["key"].rpartition("/")[2], conflict["other"]["key"].rpartition("/")[2]}
    assert keys == {"1.png", "x.png"}


def test_convert_prints_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--input", str(folder), "--output", str(tmp_path / "out"), "--shards", "2"]) == 0
    out = capsys.readouterr().out
    assert "1 LABEL_CONFLICT" in out and "1 SPLIT_LEAKAGE" in out


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["classification", "tfds", pytest.param("raw", marks=pytest.mark.slow)])
def test_validate_reports_them_at_every_depth(folder: Path, tmp_path: Path, layout: str) -> None:
    """Also if the records do not state their sources, and only the ledgers know them."""
    output = tmp_path / "out"
    size = {"resize": "9", "image_format": "raw"} if layout == "raw" else {}
    made(folder, output, layout=layout, **size)
    for mode in ("fast", "full"):
        assert validate(output, mode=mode).counts == COUNTS
    found = validate(output, mode="quality").counts
    assert {code: found[code] for code in COUNTS} == COUNTS
    arguments = [str(output), "--fast", "--fail_on", "LABEL_CONFLICT"]
    assert main(["validate", *arguments]) == 1
    assert main(["validate", str(output), "--fast"]) == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["none", "fast"])
def test_rebuild_reports_them(folder: Path, tmp_path: Path, verify: str) -> None:
    result = rebuild(input=str(folder / "train"), output=str(tmp_path / "out"), shards=2, verify=verify)
    assert [text for text in result.outcome["warnings"] if text.startswith("1 LABEL_CONFLICT")]
    stored = json.loads((Path(result.path) / "findings.json").read_text())
    assert stored["counts"] == {"LABEL_CONFLICT": 1}


def test_a_conversion_of_the_same_build_keeps_the_findings(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    made(folder, output)
    found = validate(output, mode="quality")
    assert found.counts["TINY_CLASS"] and found.counts["LABEL_CONFLICT"]
    result = made(folder, output, overwrite=True)
    assert result.dataset.fingerprint == found.fingerprint and result.findings == COUNTS
    stored = json.loads((output / "findings.json").read_text())
    assert stored["counts"] == found.counts
    assert [run["depth"] for run in stored["checks"]] == ["frames", "quality"]
