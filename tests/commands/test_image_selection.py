"""Conversions that leave images out: by name, bytes, size, quality, class, format, bounds, and as copies."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import iso_files, oversized, pictures
from helpers.depths import compared, findings_of
from helpers.from_nothing import begin, entries_of, unchanged, work
from helpers.hostile import document, make_tree, outcomes, picture
from helpers.listing import listed
from helpers.pictures import noise
from helpers.repository import EXAMPLES, copy_photos
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from shardwright.core.conversion import ShardRecipe, read_ref
from shardwright.core.dedupe import hash_picture, hash_read, join_groups
from shardwright.core.images.near_duplicates import alike
from shardwright.core.shards.shard_plan import recipes_of
from shardwright.core.sources.rules import RuleMatches, make_rules, unmatched_warnings
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan
from shardwright.pipelines.results import ConvertResult, print_convert_summary
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import DataRefused, UsageError
from shardwright.schemas.image_formats import parse_formats
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry


def save(path: Path, image: Image.Image, quality: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=quality)


def left_out(entries: dict[str, Entry]) -> dict[str, tuple[str, str]]:
    """Returns key -> reason and stage of the filtered images."""
    return {key: (e.reason, e.stage) for key, e in entries.items() if e.outcome == "filtered"}


def written(entries: dict[str, Entry]) -> set[str]:
    """Returns the keys of the images that have a record."""
    return {key for key, entry in entries.items() if entry.outcome == "written"}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_setting_leaves_out_its_images_and_the_ledger_says_why(tmp_path: Path) -> None:
    source = tmp_path / "in"
    save(source / "a" / "good.png", noise((64, 48)))
    save(source / "a" / "good2.png", noise((48, 64), 1))
    save(source / "a" / "small.png", noise((64, 15)))
    save(source / "b" / "long.png", noise((128, 40)))
    save(source / "b" / "empty.png", Image.new("RGB", (64, 64), (90, 140, 200)))
    save(source / "b" / "dark.png", Image.eval(noise((64, 64), 2), lambda value: value // 8))
    save(source / "b" / "gray.png", noise((64, 64), 3).convert("L"))
    save(source / "b" / "draft.png", noise((64, 64), 4))
    save(source / "b" / "optout.png", noise((64, 64), 5))
    (source / "b" / "tiny.bmp").write_bytes(b"BM")
    (source / "b" / "broken.png").write_bytes(noise((4, 4)).tobytes() * 20)
    opt_out = tmp_path / "opt_out.txt"
    opt_out.write_text(f"{digest_of(source / 'b' / 'optout.png')}  optout.png\n")
    result = convert(
        input=str(source), output=str(tmp_path / "out"), min_side=16, max_aspect=3,
        drop="low_information,DARK,GRAYSCALE", exclude=f"draft*,@{opt_out}", min_bytes="10",
        max_bad_fraction=1, verify="none",
    )  # fmt: skip
    entries = entries_of(tmp_path / "out")
    assert left_out(entries) == {
        "a/small.png": ("min_side", "decode"),
        "b/long.png": ("max_aspect", "decode"),
        "b/empty.png": ("low_information", "encode"),
        "b/dark.png": ("dark", "encode"),
        "b/gray.png": ("grayscale", "encode"),
        "b/draft.png": ("excluded", ""),
        "b/optout.png": ("excluded", "read"),
        "b/tiny.bmp": ("min_bytes", ""),
    }
    assert entries["a/small.png"].message == "it has 64 x 15 pixels"
    assert "bits of entropy" in entries["b/empty.png"].message
    assert entries["b/broken.png"].outcome == "quarantined"
    ledger = result.dataset.ledger
    assert (ledger["listed"], ledger["written"], ledger["filtered"]) == (11, 2, 8)
    page = (tmp_path / "out" / "dataset.json").read_text()
    assert '"min_side": 16' in page and str(opt_out) not in page  # a place, which run.json has
    assert not findings_of(tmp_path / "out")
    assert not compared(tmp_path / "out", source, exclude=f"draft*,@{opt_out}")
    with pytest.raises(UsageError, match="made with --exclude"):
        compared(tmp_path / "out", source)


def test_what_is_dropped_is_what_validation_finds(tmp_path: Path) -> None:
    codes = "BLURRY,LOW_INFORMATION,LIGHT,ODD_ASPECT_RATIO"
    values = {"resize": "96x64", "fit": "contain"}
    source = copy_photos(tmp_path / "in", 2)
    whole = convert(input=str(source), output=str(tmp_path / "whole"), verify="none", **values)
    chosen = listed(source, "classification").entries(drop=codes, **values)
    found = {
        finding.key
        for finding in validate(whole.path, mode="quality").findings
        if finding.code.value in codes.split(",")
    }
    assert left_out(chosen).keys() == found and found
    assert len(written(chosen)) == whole.dataset.ledger["written"] - len(found)


def test_a_resumed_run_follows_the_present_lists(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 10)
    opt_out = tmp_path / "opt_out.txt"
    opt_out.write_text("\n")
    values = {"input": tmp_path / "in", "output": tmp_path / "out", "shards": 4, "verify": "none"}
    convert(exclude=f"@{opt_out}", **values)
    gone = sorted((tmp_path / "in").rglob("*.*"))[3]
    opt_out.write_text(f"{digest_of(gone)}\n")
    again = convert(exclude=f"@{opt_out}", resume=True, **values)
    assert again.dataset.ledger["reasons"]["filtered"] == {"excluded": 1}
    assert again.outcome["reused_shards"] == 3
    assert again.metrics["bytes_written"] < sum(shard.bytes for shard in again.dataset.shards) / 2
    key = gone.relative_to(tmp_path / "in").as_posix()
    assert left_out(entries_of(tmp_path / "out")) == {key: ("excluded", "read")}
    assert not findings_of(tmp_path / "out")


def test_an_image_that_its_digest_leaves_out_replaces_no_copy(tmp_path: Path) -> None:
    files = {"a/1.png": picture(1), "a/2.png": picture(2), "b/1.png": picture(1), "b/2.png": picture(2)}
    put_files(tmp_path / "in", files)
    keep = tmp_path / "keep.txt"
    keep.write_text(f"b/1.png\n{digest_of(tmp_path / 'in' / 'a' / '2.png')}\n")
    settings = {"include": f"@{keep}", "dedupe": "exact", "verify": "none"}
    convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), **settings)
    assert outcomes(tmp_path / "out") == {
        "a/1.png": "not_included", "a/2.png": "written", "b/1.png": "written", "b/2.png": "a/2.png",
    }  # fmt: skip


def test_at_most_n_images_of_each_class_are_taken_and_stay(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 24, ("ant", "bee", "cat"))
    (tmp_path / "in" / "cat" / "more.png").write_bytes(picture(99))
    values = {"input": str(tmp_path / "in"), "verify": "none"}
    convert(output=tmp_path / "few", max_per_class=5, **values)
    few = entries_of(tmp_path / "few")
    assert Counter(e.label for e in few.values() if e.outcome == "written") == {"ant": 5, "bee": 5, "cat": 5}
    assert Counter(reason for reason, _ in left_out(few).values()) == {"max_per_class": 10}
    convert(output=tmp_path / "more", max_per_class=6, **values)
    assert written(few) < written(entries_of(tmp_path / "more"))
    exact = {"splits": "train=0.67,test=0.33", "split_mode": "exact"}
    forecast = plan(input=str(tmp_path / "in"), max_per_class=6, limit=9, **exact)
    assert forecast.filtered == {"max_per_class": 7, "limit": 9}
    assert forecast.candidates == {"train": 6, "test": 3}  # only images within the limit are divided


@pytest.mark.parametrize("limit", ["limit", "max_per_class"])
def test_an_image_that_is_listed_twice_is_reported_even_beyond_a_limit(tmp_path: Path, limit: str) -> None:
    make_tree(tmp_path / "in", 24, ("ant", "bee"))
    paths = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "in").rglob("*.*"))
    for path in paths[:5]:
        rows = [
            f"{name},{name.split('/')[1]},{'ab'[number % 2]}" for number, name in enumerate([*paths, path])
        ]
        (tmp_path / "list.csv").write_text("\n".join(("path,label,split", *rows)))
        with pytest.raises(UsageError, match=rf"\(list.csv, line {len(paths) + 2}\)"):
            plan(input=str(tmp_path / "list.csv"), **{limit: 2})


def test_images_with_a_split_count_towards_a_limit_and_are_not_divided(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 24, ("ant", "bee"))
    paths = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "in").rglob("*.*"))
    rows = [f"{name},ant,{'' if number % 2 else 'own'}" for number, name in enumerate(paths)]
    (tmp_path / "list.csv").write_text("\n".join(("path,label,split", *rows)))
    settings = {"limit": 16, "splits": "a=0.5,b=0.5", "split_mode": "exact"}
    found = plan(input=str(tmp_path / "list.csv"), **settings).candidates
    assert sum(found.values()) == 16 and found["own"] and abs(found["a"] - found["b"]) <= 1


def test_classes_to_keep_that_no_image_has_are_named(tmp_path: Path) -> None:
    """All listed images count, also those that the limit leaves out."""
    make_tree(tmp_path / "in", 8, ("ant", "100%", "cat"))
    keep = tmp_path / "keep.txt"
    keep.write_text("ant\n100%\ndog\n")
    settings = {"keep_labels": str(keep), "limit": 1, "shards": "9", "verify": "none"}
    result = convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), **settings)
    assert result.dataset.labels == ("100%25",)
    class_warning, shard_warning, _ = result.outcome["warnings"]  # and there is only one class
    assert class_warning == f"No image has the class 'dog' of --keep_labels {keep}; check the spelling."
    assert shard_warning == (
        "--shards 9: split train has 1 image, so 8 shards will be empty; write --shards 1 or fewer."
    )


def test_names_that_no_class_has_are_reported_with_the_nearest(tmp_path: Path) -> None:
    def warnings(**values: str) -> list[str]:
        settings = ConvertSettings(input=("in",), **values)  # type: ignore[arg-type]
        rules, matches = make_rules(settings), RuleMatches()
        for label in ("Ant", "bees", "cat"):
            matches.add(ImageRef(f"{label}/1.jpg", "", label), rules)
        return unmatched_warnings([matches], settings, rules)

    assert warnings(rename_labels="bee=wasp,cat=wasp,ANT=ant") == [
        "No image has the class 'ANT' or 'bee' of --rename_labels bee=wasp,cat=wasp,ANT=ant; "
        "did you mean Ant?"
    ]
    keep = tmp_path / "keep.txt"
    keep.write_text("wasp\nants\n")
    assert warnings(rename_labels="cat=wasp", keep_labels=str(keep)) == [
        f"No image has the class 'ants' of --keep_labels {keep}; did you mean Ant?"
    ]
    assert warnings(rename_labels="bees=wasp,cat=wasp") == []
    assert "--include 'dog/*' matches no key" in warnings(include="dog/*")[0]
    unused = warnings(exclude="draft/,*.webp")
    assert unused[0].startswith("--exclude draft/,*.webp: 'draft/' and '*.webp' match no key")


def warnings_of(tmp_path: Path, **settings: Any) -> tuple[set[str], list[str]]:
    """Converts a small tree; returns the written keys and the warnings."""
    make_tree(tmp_path / "in", 6, ("Ant", "bees", "cat"))
    values = {"input": tmp_path / "in", "output": tmp_path / "out", "overwrite": True, "verify": "none"}
    result = convert(**values, **settings)
    return written(entries_of(tmp_path / "out")), result.outcome["warnings"]


def test_classes_that_are_not_listed_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "names.txt").write_text("ant\nbees\n")
    names = tmp_path / "names.txt"
    values = {"class_names": str(names), "max_bad_fraction": 1}
    _, warnings = warnings_of(tmp_path, **values)
    assert warnings == [
        f"4 images are bad, because --class_names {names} does not list the class 'Ant' and 1 other class; "
        "did you mean ant?"
    ]
    (tmp_path / "names.txt").write_text("Ant\nbees\n")
    with pytest.raises(DataRefused, match=r"2 of 6 images are bad .*; list the class 'cat' in --class_n"):
        warnings_of(tmp_path, **values | {"max_bad_fraction": 0.1})
    assert "Traceback" not in caplog.text


def test_lines_that_match_no_image_are_counted(tmp_path: Path) -> None:
    lines = [
        "./Ant/000.jpg",
        r"bees\001.png",
        str(tmp_path / "in/cat/002.png"),
        '"cat/005.png"',
        "cat/",
        "*.gif",
    ]
    (tmp_path / "out.txt").write_text("\n".join(lines))
    keys, warnings = warnings_of(tmp_path, exclude=f"./Ant/*3.jpg,gone/,@{tmp_path / 'out.txt'}")
    assert keys == {"bees/004.png", "cat/002.png", "cat/005.png"}
    of_patterns, of_lines, *rest = warnings
    assert "'gone/' matches no key; a key is the path below the input, such as 'Ant/000.jpg'" in of_patterns
    assert "4 of 6 lines match no image: '\"cat/005.png\"'; did you mean cat/005.png?" in of_lines
    assert "write patterns and folders beside @FILE" in of_lines and not rest


def test_if_nothing_is_left_the_lines_that_match_nothing_are_named(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 6, ("ant", "bee", "cat"))
    values = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    (tmp_path / "some.txt").write_text(f"{tmp_path}/in/ant/000.jpg\nAnt/000.jpg\n")
    message = r"no image is left \(6 not_included\)\. .*2 of 2 lines match no image"
    with pytest.raises(UsageError, match=message):
        convert(include=f"@{tmp_path / 'some.txt'}", **values)
    (tmp_path / "keep.txt").write_text("cats\n")
    with pytest.raises(UsageError, match=r"\(6 label_not_kept\)\. No image has the class 'cats'.*mean cat\?"):
        convert(keep_labels=str(tmp_path / "keep.txt"), **values)


def test_include_takes_only_what_it_names(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 12, ("ant", "bee", "cat"))
    files = sorted((tmp_path / "in").rglob("*.*"))
    listed = next(path for path in files if path.parent.name == "cat")
    (tmp_path / "in" / "cat" / "empty.jpg").write_bytes(b"")
    (tmp_path / "some.txt").write_text(f"{digest_of(listed)}\n")
    include = f"ant/*,@{tmp_path / 'some.txt'}"
    result = convert(input=tmp_path / "in", output=tmp_path / "out", include=include, verify="none")
    wanted = [path for path in files if path.parent.name == "ant" or path == listed]
    assert written(entries_of(tmp_path / "out")) == {
        path.relative_to(tmp_path / "in").as_posix() for path in wanted
    }
    assert result.dataset.ledger["quarantined"] == 0  # the bytes of the bad one are not included either
    assert not result.outcome["warnings"]
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(UsageError, match="lists no image"):
        convert(input=str(tmp_path / "in"), output=str(tmp_path / "x"), include=f"@{tmp_path / 'none.txt'}")


PSD = b"8BPS\0\1" + bytes(range(200))


def test_skipped_formats_are_filtered_whatever_their_names_are(tmp_path: Path) -> None:
    picture = Image.fromarray(pictures.rgb_pixels(40, 30))
    files = {
        "ant/1.jpg": pictures.file_of(picture, "JPEG"),
        "ant/2.jxl": iso_files.jxl_of(picture),
        "ant/3.jp2": iso_files.jp2_of(picture),
        "bee/4.jpg": iso_files.jp2_of(picture),
        "bee/5.psd": PSD,
        "bee/6": PSD,
        "bee/7.jp2": pictures.file_of(picture, "PNG"),
        "bee/8.tga": b"\x0a\5\1\10 whatever",
    }
    put_files(tmp_path / "in", files)
    output = tmp_path / "out"
    entries = listed(tmp_path / "in", "classification").entries().values()
    assert [entry.outcome for entry in entries].count("quarantined") == 3  # these formats are not read
    skipped = ["--skip_formats", "JP2, psd,tga", "--max_bad_fraction=0", "--verify=none"]
    assert main(["convert", str(tmp_path / "in"), str(output), *skipped]) == 0
    kept = ("ant/1.jpg", "ant/2.jxl", "bee/7.jp2")
    assert outcomes(output) == dict.fromkeys(files, "skipped_format") | dict.fromkeys(kept, "written")
    dataset = json.loads((output / "dataset.json").read_text())
    assert dataset["plan"]["settings"]["skip_formats"] == "jpeg2000,psd,tga"
    assert dataset["ledger"]["filtered"] == 5 and dataset["ledger"]["quarantined"] == 0
    assert not findings_of(output)


def test_formats_are_named_as_users_name_them() -> None:
    found = parse_formats("HEIC,.jxl, jpeg2000,Camera raw,DNG")
    assert found == {"heif", "jpeg_xl", "jpeg2000", "camera_raw"}


def test_another_decoder_of_heif_changes_no_recipe() -> None:
    plain = ConvertSettings(input=("in",)).identity()
    assert recipes_of(plain, {"pillow": "1"}) == recipes_of(plain, {"pillow": "1", "pillow_heif": "2"})


def test_a_raised_bound_accepts_the_image_and_is_recorded(tmp_path: Path) -> None:
    sizes = {"a/usual.jpg": 1, "a/long.jpg": 1 << 16}
    source = put_files(tmp_path / "in", {name: oversized.jpeg_of_segments(n) for name, n in sizes.items()})
    usual = listed(source, "classification").entries()
    assert [entry.reason for entry in usual.values() if entry.outcome != "written"] == ["TOO_MANY_SEGMENTS"]
    assert "raise --bounds TOO_MANY_SEGMENTS=65536" in usual["a/long.jpg"].message
    raised = convert(input=source, output=tmp_path / "out", bounds="TOO_MANY_SEGMENTS=70000", verify="none")
    assert raised.dataset.ledger["written"] == 2
    assert document(tmp_path / "out")["settings"]["bounds"] == "TOO_MANY_SEGMENTS=70000"
    assert not findings_of(tmp_path / "out")


RANKED = st.tuples(st.integers(-3, 0), st.sampled_from("abcdefgh"))


def photo(name: str) -> Image.Image:
    return Image.open(EXAMPLES / name).convert("RGB")


def copies_of(dataset: Path) -> dict[str, str]:
    """Returns key of a copy -> key of the image that was kept."""
    return {key: e.reason for key, e in entries_of(dataset).items() if e.outcome == "deduplicated"}


def test_the_largest_of_similar_images_is_kept_and_no_group_is_in_two_splits(tmp_path: Path) -> None:
    eagle, house = photo("birds/eagle.jpg"), photo("buildings/house.jpg")
    small = eagle.resize((eagle.width // 2, eagle.height // 2), Image.Resampling.LANCZOS)
    source = tmp_path / "in"
    save(source / "train" / "birds" / "b-small.jpg", small)
    bright = ImageEnhance.Brightness(small).enhance(1.04)
    save(source / "train" / "birds" / "c-bright.jpg", bright, quality=60)
    save(source / "test" / "birds" / "a-large.png", eagle)
    save(source / "train" / "houses" / "same-1.jpg", house)
    save(source / "test" / "houses" / "same-2.jpg", house)
    save(source / "test" / "houses" / "other.jpg", photo("buildings/library.jpg"))
    values = {"input": str(source), "output": str(tmp_path / "out"), "resize": "96", "verify": "none"}
    result = convert(dedupe="near", **values)
    assert copies_of(tmp_path / "out") == {
        "train/birds/b-small.jpg": "test/birds/a-large.png",
        "train/birds/c-bright.jpg": "test/birds/a-large.png",
        "train/houses/same-1.jpg": "test/houses/same-2.jpg",
    }
    ledger = result.dataset.ledger
    assert (ledger["listed"], ledger["written"], ledger["deduplicated"]) == (6, 3, 3)
    after = validate(result.path, mode="quality", against=[str(source)])
    assert not after.errors
    assert not {FindingCode.SPLIT_LEAKAGE, FindingCode.NEAR_DUPLICATE} & after.counts.keys()


@pytest.mark.slow
def test_rebuilds_keep_the_present_largest(tmp_path: Path) -> None:
    eagle = photo("birds/eagle.jpg")
    for number, side in enumerate((100, 140)):
        save(tmp_path / "in" / "a" / f"{number}.jpg", eagle.resize((side, side)))
    for name in ("house", "library", "factory"):
        save(tmp_path / "in" / "b" / f"{name}.jpg", photo(f"buildings/{name}.jpg").resize((120, 120)))
    rebuilt = begin(tmp_path, dedupe="near", splits="train=0.5,test=0.5")
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/1.jpg"}
    assert unchanged(rebuilt)
    save(tmp_path / "in" / "a" / "9.jpg", eagle.resize((180, 180)))
    assert work(rebuilt)[2] == 1
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/9.jpg", "a/1.jpg": "a/9.jpg"}
    (tmp_path / "in" / "a" / "9.jpg").unlink()
    assert work(rebuilt)[2] == 1
    assert copies_of(rebuilt.latest) == {"a/0.jpg": "a/1.jpg"}
    # What the conversion leaves out cannot be kept in favor of another.
    assert work(rebuilt, exclude="a/1.jpg")[2] == 1
    assert copies_of(rebuilt.latest) == {}


def test_images_that_will_be_left_out_have_no_fingerprint(tmp_path: Path) -> None:
    save(tmp_path / "a.jpg", photo("birds/eagle.jpg").resize((100, 40)))
    (tmp_path / "bad.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-200])
    flat = Image.new("RGB", (64, 64), (90, 140, 200))
    save(tmp_path / "flat.png", flat)

    def seen(name: str, **values: object) -> object:
        settings = ConvertSettings(input=("in",), **values)  # type: ignore[arg-type]
        recipe = ShardRecipe(settings, settings.record_layout, {})
        return hash_read(settings, read_ref(ImageRef(name, str(tmp_path / name)), recipe))

    assert seen("a.jpg") and seen("flat.png", drop="DARK")
    assert seen("a.jpg", min_side=41) is seen("a.jpg", max_aspect=2) is seen("a.jpg", min_bytes="1MB") is None
    assert seen("bad.jpg") is seen("gone.jpg") is seen("flat.png", drop="LOW_INFORMATION") is None


@pytest.mark.parametrize("channels", [0, 3])
def test_reduced_decoding_gives_nearly_the_same_fingerprint(tmp_path: Path, channels: int) -> None:
    jpeg, png = tmp_path / "large.jpg", tmp_path / "large.png"
    save(jpeg, photo("birds/penguin.jpg").resize((1600, 1160)))
    save(png, Image.open(jpeg))
    settings = ConvertSettings(input=("in",), channels=channels)
    reduced, whole = (hash_picture(path.read_bytes(), path.name, settings) for path in (jpeg, png))
    assert reduced.pixels == whole.pixels == 1600 * 1160
    [(first, second, _)] = alike([reduced.hash, whole.hash], [reduced.patch, whole.patch], 0)
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
        made = hash_picture(pictures.file_of(image, "PNG"), "x.png", settings)
        return made.hash, made.patch

    similar = [seen(ImageEnhance.Brightness(eagle).enhance(1 + step / 100)) for step in range(5)]
    hashes, patches = zip(*similar)
    assert {pair[:2] for pair in alike(hashes, patches, 0)} == set(itertools.combinations(range(5), 2))
    many = [rng.choice(similar) for _ in range(400)]
    hashes, patches = zip(*many)
    joined = join_groups(
        ((0, str(first)), (0, str(second))) for first, second, _ in alike(hashes, patches, 0)
    )
    assert len(joined) == 399 and len(set(joined.values())) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of two classes; one dog is also a cat, and another one is in both splits."""
    root = tmp_path_factory.mktemp("pictures")
    for split in ("train", "test"):
        for number in range(8):
            path = root / split / ("cat", "dog")[number % 2] / f"{number}.png"
            save(path, noise((9, 9), number + 100 * len(split)))
    shutil.copy(root / "train/dog/1.png", root / "train/cat/x.png")
    shutil.copy(root / "train/dog/3.png", root / "test/dog/y.png")
    return root


def converted(folder: Path, output: Path, **settings: object) -> ConvertResult:
    return convert(input=str(folder), output=str(output), shards=2, **settings)


COUNTS = {"LABEL_CONFLICT": 1, "SPLIT_LEAKAGE": 1}


def test_convert_reports_them_without_a_verification(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = converted(folder, tmp_path / "out", verify="none")
    print_convert_summary(result)
    out = capsys.readouterr().out
    assert "1 LABEL_CONFLICT" in out and "1 SPLIT_LEAKAGE" in out
    assert result.findings == COUNTS
    warnings = [text for text in result.outcome["warnings"] if "LABEL_CONFLICT" in text]
    assert len(warnings) == 1 and "dog/1.png" in warnings[0] and "of class" in warnings[0]
    stored = json.loads((tmp_path / "out" / "findings.json").read_text())
    assert (stored["counts"], stored["warnings"]) == (COUNTS, 2)
    assert (stored["mode"], stored["passed"], stored["sound"]) == ("none", True, None)
    conflict = next(one for one in stored["findings"] if one["code"] == "LABEL_CONFLICT")
    assert conflict["severity"] == "warning"
    keys = {conflict["key"].rpartition("/")[2], conflict["other"]["key"].rpartition("/")[2]}
    assert keys == {"1.png", "x.png"}


def test_validate_reports_them_at_every_depth(folder: Path, tmp_path: Path) -> None:
    """The records do not state their sources; only the ledgers know them."""
    output = tmp_path / "out"
    assert converted(folder, output, layout="tfds").findings == COUNTS
    stored = json.loads((output / "findings.json").read_text())
    assert (stored["mode"], stored["passed"], stored["sound"]) == ("frames", True, True)
    for depth in ("fast", "full"):
        assert Counter(finding.code.value for finding in findings_of(output, depth)) == COUNTS
    measured = validate(output, mode="quality")
    assert measured.counts.items() >= COUNTS.items() and measured.counts["TINY_CLASS"]
    # A conversion of the same build keeps what was found.
    result = converted(folder, output, layout="tfds", overwrite=True, verify="full")
    assert result.dataset.fingerprint == measured.fingerprint and result.findings == COUNTS
    stored = json.loads((output / "findings.json").read_text())
    assert stored["counts"] == measured.counts
    assert [run["depth"] for run in stored["checks"]] == ["full", "quality"]


def test_classes_of_objects_are_compared_at_every_depth(folder: Path, tmp_path: Path) -> None:
    root, rows = Path(shutil.copytree(folder, tmp_path / "in")), []
    for split, label, name in (path.parts[-3:] for path in root.rglob("*.png")):
        objects = {"bbox": [[1, 1, 5, 5]], "categories": [label]}
        rows.append({"file_name": f"{split}/{label}/{name}", "split": split, "objects": objects})
    (root / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert converted(root, tmp_path / "out", layout="detection").findings == COUNTS
    assert validate(tmp_path / "out", mode="quality").counts.items() >= COUNTS.items()
