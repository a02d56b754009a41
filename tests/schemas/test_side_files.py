"""Only shards have names that begin with the name of a split."""

from __future__ import annotations

from fnmatch import filter as matching

import pytest

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plan import shard_file
from shardwright.schemas.side_files import SIDE_FILES, check_split_names, clash_of


@pytest.mark.parametrize("split", ["train", "val", "valid", "validation", "test", "testing", "eval", "dev"])
def test_a_pattern_of_a_usual_split_selects_shards_only(split: str) -> None:
    shard = shard_file(split, 0, 1, ".tfrecord")
    assert matching([shard, *SIDE_FILES], f"{split}*") == [shard]
    check_split_names([split])


@pytest.mark.parametrize(
    "split", ["labels", "dataset", "statistics", "run", "report", "f", "stat", "_shards"]
)
def test_a_split_that_a_side_file_begins_with_is_refused(split: str) -> None:
    assert matching(SIDE_FILES, f"{split}*")[0] == clash_of(split)
    with pytest.raises(ValueError, match=f"{split!r} needs another name"):
        check_split_names(["train", split])
    with pytest.raises(UsageError, match=rf"--splits train=0.5,{split}=0.5: .*\* .* {clash_of(split)}"):
        ConvertSettings(input=("in",), output="out", splits=f"train=0.5,{split}=0.5").check()


def test_a_name_that_only_begins_like_a_side_file_is_allowed() -> None:
    check_split_names(["labelled", "running", "data_2", "Report", "parsed", "validation.json"])
