"""The public names, for editors; `python docs/site_build/editor_files.py` writes this."""
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal
from shardwright.schemas import __version__ as __version__
HOMES: dict[str, str]
from shardwright.schemas.errors import DataRefused as DataRefused
from shardwright.schemas.errors import EngineError as EngineError
from shardwright.schemas.missing_packages import MissingPackage as MissingPackage
from shardwright.schemas.errors import NotRun as NotRun
from shardwright.loader import Records as Records
from shardwright.schemas.errors import ShardwrightError as ShardwrightError
from shardwright.schemas.errors import UnexpectedError as UnexpectedError
from shardwright.schemas.errors import UsageError as UsageError
from shardwright.pipelines.diff import diff as diff
from shardwright.pipelines.inspect import inspect as inspect
from shardwright.loader import load as load
from shardwright.loader import open_dataset as open_dataset
from shardwright.loader import pin as pin
from shardwright.pipelines.salvage import salvage as salvage
from shardwright.loader import select as select
from shardwright.pipelines.validate import validate as validate
from shardwright.pipelines.results import ConvertResult
def convert(
    *,
    input: str | PathLike[str] | Sequence[str | PathLike[str]] | Mapping[str, str | PathLike[str]] = (),
    output: str | PathLike[str] = '',
    source: str = 'auto',
    layout: str | PathLike[str] = 'classification',
    image_root: str | PathLike[str] = '',
    mask_dir: str | PathLike[str] = '',
    confine: bool = False,
    image_column: str = '',
    label_column: str = '',
    split_column: str = '',
    group_column: str = '',
    sha256_column: str = '',
    extra_columns: str | Mapping[str, str] = '',
    label_separator: str = '',
    label_regex: str = '',
    label_depth: str | int = '1',
    folders: Literal['auto', 'classes', 'splits', 'ignore'] = 'auto',
    unlabelled: Literal['quarantine', 'keep'] = 'quarantine',
    rename_labels: str | PathLike[str] | Mapping[str, str] = '',
    keep_labels: str | PathLike[str] = '',
    bad_boxes: Literal['drop', 'clip', 'fail'] = 'drop',
    missing_annotations: Literal['fail', 'empty'] = 'fail',
    pixel_shape: str = '',
    splits: str | Mapping[str, Any] = 'train=1',
    split_mode: Literal['hash', 'exact', 'stratified'] = 'hash',
    folds: int = 0,
    split_by: str = '',
    seed: int = 0,
    shard_size: str | int = '128MB',
    shards: str | int | Mapping[str, int] = '',
    compression: Literal['none', 'gzip', 'zlib'] = 'none',
    map: str = '',
    resize: str | int | Sequence[int] = '',
    fit: Literal['stretch', 'contain', 'cover', 'fit', 'pad'] = 'stretch',
    resample: Literal['nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos'] = 'bilinear',
    image_format: Literal['keep', 'jpeg', 'png', 'webp', 'raw', ''] = '',
    quality: int = 95,
    color: Literal['rgb', 'gray', 'keep'] = 'rgb',
    depth: Literal['8', 'keep'] = '8',
    channels: int = 0,
    white: int = 0,
    background: str = 'white',
    strip_metadata: bool = False,
    damaged: Literal['quarantine', 'keep'] = 'quarantine',
    max_pixels: int = 89478485,
    max_bytes: str | int = '256MB',
    bounds: str | Mapping[str, int] = '',
    include: str = '',
    exclude: str = '',
    min_bytes: str | int = '',
    min_side: int = 0,
    max_aspect: float = 0.0,
    drop: str = '',
    license: str = '',
    citation: str = '',
    creator: str = '',
    url: str = '',
    description: str = '',
    date_published: str = '',
    skip_formats: str = '',
    max_bad_fraction: float = 0.01,
    class_names: str | PathLike[str] = '',
    dedupe: Literal['none', 'exact', 'near'] = 'none',
    max_per_class: int = 0,
    limit: int = 0,
    verify: Literal['fast', 'full', 'quality', 'none'] = 'fast',
    plan_from: str | PathLike[str] = '',
    overwrite: bool = False,
    resume: bool = False,
    beam_options: Any = None,
    progress: bool = False,
) -> ConvertResult:
    r"""Converts images to a dataset: the same as `shardwright convert`, as a function.

    Args:
      beam_options: Beam's PipelineOptions, or a list of its command-line options; without a
        runner, Beam's in-process runner is used.
      progress: Whether to show progress on stderr.
      input: A folder, file or archive that contains or lists images; repeatable; NAME=PATH puts NAME/ before
        the keys.
      output: The dataset directory to write.
      source: The kind of input; auto detects it and prints what it detected.
      layout: The record layout: a name that `shardwright layouts` lists, or a file LAYOUT.yaml.
      image_root: Folder at which relative paths in a manifest or an annotation file start; default: its own
        folder.
      mask_dir: Folder with a mask for each image, with the same name.
      confine: Read images and masks only inside an input's own folder or bucket, --image_root and --mask_dir,
        wherever a manifest, an annotation file or a symbolic link points.
      image_column: Column of a manifest with the image paths, or of a Parquet or Arrow file with the images.
      label_column: Column of a manifest with the class names or numbers.
      split_column: Column of a manifest with the splits.
      group_column: Column of a manifest with groups; images of a group stay in one split.
      sha256_column: Column of a manifest with the sha256 of the files.
      extra_columns: Columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32,
        int64, uint64, float, double, string or bytes).
      label_separator: Separator between the classes of an image that has several, such as |.
      label_regex: Regex for file names: '(?P<label>[a-z]+)\d+\.jpg'; also (?P<split>...) and (?P<group>...).
      label_depth: Number of folders in a class name: 1, 2 (animals/cat), 3, ..., all, or last for only the
        innermost.
      folders: What the folders at the top are: classes; splits (those named train, validation, test, ...,
        with or without class folders inside; others are left out); ignore (their names have no meaning); auto
        decides, and fails if they could be either.
      unlabelled: Images without a class: quarantine them, or keep them with label -1.
      rename_labels: old=new,... or a file with one old=new per line.
      keep_labels: File with the class names to keep, after renaming; images of other classes are filtered.
      bad_boxes: Boxes outside the image, inverted, empty or without a class: drop them, clip those that
        overlap the image, or fail the image.
      missing_annotations: Images without their annotation file, such as VOC's XML or LabelMe's JSON: fail
        them, or store them without objects (YOLO always does).
      pixel_shape: Shape of raw pixels, if the source does not have it: 32x32x3 (height, width, channels).
      splits: Shares such as train=0.8,validation=0.1,test=0.1; ignored if the source names the splits, unless
        it is TFRecords, Parquet files, arrays or archives named by split, which are divided anew.
      split_mode: hash: shares are met on average; exact: each split gets its number of images; stratified:
        each split gets its share of every class. No image changes its split as the data grows.
      folds: Number of folds for cross-validation in each split; records store their fold, and the loader
        selects with fold=N (0: no folds).
      split_by: Regular expression for keys: images with the same first group (or match) stay in one split.
      seed: Seed of the hashes that decide split, shard and order.
      shard_size: Target size of a shard (MB = 10^6 bytes).
      shards: A fixed number of shards: 8 (in each split) or train=8,test=1.
      compression: Compression of the shards.
      map: Your own function, which changes, multiplies or drops each decoded image before it is resized.
      resize: Target size in pixels: 224 (= 224x224) or WxH.
      fit: How an image is fitted to the target size (Pillow's ImageOps terms).
      resample: The resampling filter.
      image_format: Format of the stored images; default: jpeg when resizing, else keep (the original bytes if
        nothing has to change).
      quality: Quality of JPEG (4:2:0) and WebP, 1 to 100.
      color: Channels: rgb, gray, or keep (grayscale images stay grayscale).
      depth: Bits per channel: 8 (everything is scaled to 8 bits), or keep (16 bits stay 16 bits, and
        floating-point numbers stay 32-bit floats).
      channels: Store all N channels of each image as they are in its file, as raw pixels; for TIFF and arrays
        with 2 to 16 channels (0: --color decides).
      white: Sample that becomes white when 16-bit images are scaled to 8 bits, such as 4095 for 12-bit scans;
        images with larger ones are quarantined (0: 65535, unless all images are dark).
      background: Color under transparent pixels and around padded images.
      strip_metadata: Remove EXIF, GPS and comments from kept originals.
      damaged: Images whose decoder reports missing or damaged data: quarantine them, or keep them with the
        pixels that the decoder makes up.
      max_pixels: Quarantine images with more pixels (width x height), without decoding them (Pillow's limit).
      max_bytes: Quarantine larger source files without reading them.
      bounds: How many parts an image file may have, by the code with which it is quarantined otherwise:
        TOO_MANY_SCANS=500,...; docs/dataset.md lists codes and defaults.
      include: Take only images whose key matches a pattern, such as cats/*.jpg, or that a file lists by key
        or sha256 (@FILE, one per line); others are filtered.
      exclude: Leave out images whose key matches a pattern, such as drafts/, or that a file lists by key or
        sha256 (@FILE, one per line), such as a list of opt-outs.
      min_bytes: Leave out smaller source files.
      min_side: Leave out images whose shorter side has fewer pixels (0: none).
      max_aspect: Leave out images whose longer side is more than X times the shorter (0: none).
      drop: Leave out images that, as stored, have one of these findings of validate --quality: DARK, LIGHT,
        BLURRY, LOW_INFORMATION, ODD_ASPECT_RATIO, GRAYSCALE.
      license: License of the dataset: an SPDX identifier such as CC-BY-4.0, a web address, or a name.
      citation: How to cite the dataset, best as BibTeX.
      creator: Who made the dataset: names separated by ; (org:NAME for an organization).
      url: Home page of the dataset.
      description: What the dataset contains, as Markdown.
      date_published: Date of publication: 2026-03-31.
      skip_formats: Formats to leave out on purpose, by name or extension: heic,psd; such images are filtered,
        and do not count as bad.
      max_bad_fraction: Publish nothing if quarantined / (written + quarantined) is larger.
      class_names: File with the class names in id order; images of other classes are quarantined.
      dedupe: exact: keep only the smallest key of files with equal bytes; near: keep only the largest of
        images that look alike, as validate --quality finds them.
      max_per_class: Convert at most the N images of each class with the lowest hashes (0: all).
      limit: Convert only the N images with the lowest hashes (0: all).
      verify: fast: framing, CRCs, counts, checksums; full: also decode every image; quality: also image
        statistics.
      plan_from: Reuse the plan of this dataset.json: settings, labels and shard counts.
      overwrite: Replace the dataset at --output.
      resume: Finish an interrupted run.

    Returns:
      The finished dataset.

    Raises:
      UsageError: If the settings or the input are wrong; nothing was written.
      DataRefused: If the data did not pass; nothing was published.
      NotRun: If Beam's options only describe the job (a template, a dry run).
      EngineError: If the engine, the storage or the machine failed; `resume=True` continues.
    """

from shardwright.schemas.plan import Forecast
def plan(
    *,
    input: str | PathLike[str] | Sequence[str | PathLike[str]] | Mapping[str, str | PathLike[str]] = (),
    output: str | PathLike[str] = '',
    source: str = 'auto',
    layout: str | PathLike[str] = 'classification',
    image_root: str | PathLike[str] = '',
    mask_dir: str | PathLike[str] = '',
    confine: bool = False,
    image_column: str = '',
    label_column: str = '',
    split_column: str = '',
    group_column: str = '',
    sha256_column: str = '',
    extra_columns: str | Mapping[str, str] = '',
    label_separator: str = '',
    label_regex: str = '',
    label_depth: str | int = '1',
    folders: Literal['auto', 'classes', 'splits', 'ignore'] = 'auto',
    unlabelled: Literal['quarantine', 'keep'] = 'quarantine',
    rename_labels: str | PathLike[str] | Mapping[str, str] = '',
    keep_labels: str | PathLike[str] = '',
    bad_boxes: Literal['drop', 'clip', 'fail'] = 'drop',
    missing_annotations: Literal['fail', 'empty'] = 'fail',
    pixel_shape: str = '',
    splits: str | Mapping[str, Any] = 'train=1',
    split_mode: Literal['hash', 'exact', 'stratified'] = 'hash',
    folds: int = 0,
    split_by: str = '',
    seed: int = 0,
    shard_size: str | int = '128MB',
    shards: str | int | Mapping[str, int] = '',
    compression: Literal['none', 'gzip', 'zlib'] = 'none',
    map: str = '',
    resize: str | int | Sequence[int] = '',
    fit: Literal['stretch', 'contain', 'cover', 'fit', 'pad'] = 'stretch',
    resample: Literal['nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos'] = 'bilinear',
    image_format: Literal['keep', 'jpeg', 'png', 'webp', 'raw', ''] = '',
    quality: int = 95,
    color: Literal['rgb', 'gray', 'keep'] = 'rgb',
    depth: Literal['8', 'keep'] = '8',
    channels: int = 0,
    white: int = 0,
    background: str = 'white',
    strip_metadata: bool = False,
    damaged: Literal['quarantine', 'keep'] = 'quarantine',
    max_pixels: int = 89478485,
    max_bytes: str | int = '256MB',
    bounds: str | Mapping[str, int] = '',
    include: str = '',
    exclude: str = '',
    min_bytes: str | int = '',
    min_side: int = 0,
    max_aspect: float = 0.0,
    drop: str = '',
    license: str = '',
    citation: str = '',
    creator: str = '',
    url: str = '',
    description: str = '',
    date_published: str = '',
    skip_formats: str = '',
    max_bad_fraction: float = 0.01,
    class_names: str | PathLike[str] = '',
    dedupe: Literal['none', 'exact', 'near'] = 'none',
    max_per_class: int = 0,
    limit: int = 0,
    verify: Literal['fast', 'full', 'quality', 'none'] = 'fast',
    plan_from: str | PathLike[str] = '',
    overwrite: bool = False,
    resume: bool = False,
    beam_options: Any = None,
    progress: bool = False,
) -> Forecast:
    r"""Plans a dataset: the same as `shardwright plan`, as a function.

    It takes the settings of `convert`; `output` is not needed.

    Args:
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: Whether to show progress on stderr.
      input: A folder, file or archive that contains or lists images; repeatable; NAME=PATH puts NAME/ before
        the keys.
      output: The dataset directory to write.
      source: The kind of input; auto detects it and prints what it detected.
      layout: The record layout: a name that `shardwright layouts` lists, or a file LAYOUT.yaml.
      image_root: Folder at which relative paths in a manifest or an annotation file start; default: its own
        folder.
      mask_dir: Folder with a mask for each image, with the same name.
      confine: Read images and masks only inside an input's own folder or bucket, --image_root and --mask_dir,
        wherever a manifest, an annotation file or a symbolic link points.
      image_column: Column of a manifest with the image paths, or of a Parquet or Arrow file with the images.
      label_column: Column of a manifest with the class names or numbers.
      split_column: Column of a manifest with the splits.
      group_column: Column of a manifest with groups; images of a group stay in one split.
      sha256_column: Column of a manifest with the sha256 of the files.
      extra_columns: Columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32,
        int64, uint64, float, double, string or bytes).
      label_separator: Separator between the classes of an image that has several, such as |.
      label_regex: Regex for file names: '(?P<label>[a-z]+)\d+\.jpg'; also (?P<split>...) and (?P<group>...).
      label_depth: Number of folders in a class name: 1, 2 (animals/cat), 3, ..., all, or last for only the
        innermost.
      folders: What the folders at the top are: classes; splits (those named train, validation, test, ...,
        with or without class folders inside; others are left out); ignore (their names have no meaning); auto
        decides, and fails if they could be either.
      unlabelled: Images without a class: quarantine them, or keep them with label -1.
      rename_labels: old=new,... or a file with one old=new per line.
      keep_labels: File with the class names to keep, after renaming; images of other classes are filtered.
      bad_boxes: Boxes outside the image, inverted, empty or without a class: drop them, clip those that
        overlap the image, or fail the image.
      missing_annotations: Images without their annotation file, such as VOC's XML or LabelMe's JSON: fail
        them, or store them without objects (YOLO always does).
      pixel_shape: Shape of raw pixels, if the source does not have it: 32x32x3 (height, width, channels).
      splits: Shares such as train=0.8,validation=0.1,test=0.1; ignored if the source names the splits, unless
        it is TFRecords, Parquet files, arrays or archives named by split, which are divided anew.
      split_mode: hash: shares are met on average; exact: each split gets its number of images; stratified:
        each split gets its share of every class. No image changes its split as the data grows.
      folds: Number of folds for cross-validation in each split; records store their fold, and the loader
        selects with fold=N (0: no folds).
      split_by: Regular expression for keys: images with the same first group (or match) stay in one split.
      seed: Seed of the hashes that decide split, shard and order.
      shard_size: Target size of a shard (MB = 10^6 bytes).
      shards: A fixed number of shards: 8 (in each split) or train=8,test=1.
      compression: Compression of the shards.
      map: Your own function, which changes, multiplies or drops each decoded image before it is resized.
      resize: Target size in pixels: 224 (= 224x224) or WxH.
      fit: How an image is fitted to the target size (Pillow's ImageOps terms).
      resample: The resampling filter.
      image_format: Format of the stored images; default: jpeg when resizing, else keep (the original bytes if
        nothing has to change).
      quality: Quality of JPEG (4:2:0) and WebP, 1 to 100.
      color: Channels: rgb, gray, or keep (grayscale images stay grayscale).
      depth: Bits per channel: 8 (everything is scaled to 8 bits), or keep (16 bits stay 16 bits, and
        floating-point numbers stay 32-bit floats).
      channels: Store all N channels of each image as they are in its file, as raw pixels; for TIFF and arrays
        with 2 to 16 channels (0: --color decides).
      white: Sample that becomes white when 16-bit images are scaled to 8 bits, such as 4095 for 12-bit scans;
        images with larger ones are quarantined (0: 65535, unless all images are dark).
      background: Color under transparent pixels and around padded images.
      strip_metadata: Remove EXIF, GPS and comments from kept originals.
      damaged: Images whose decoder reports missing or damaged data: quarantine them, or keep them with the
        pixels that the decoder makes up.
      max_pixels: Quarantine images with more pixels (width x height), without decoding them (Pillow's limit).
      max_bytes: Quarantine larger source files without reading them.
      bounds: How many parts an image file may have, by the code with which it is quarantined otherwise:
        TOO_MANY_SCANS=500,...; docs/dataset.md lists codes and defaults.
      include: Take only images whose key matches a pattern, such as cats/*.jpg, or that a file lists by key
        or sha256 (@FILE, one per line); others are filtered.
      exclude: Leave out images whose key matches a pattern, such as drafts/, or that a file lists by key or
        sha256 (@FILE, one per line), such as a list of opt-outs.
      min_bytes: Leave out smaller source files.
      min_side: Leave out images whose shorter side has fewer pixels (0: none).
      max_aspect: Leave out images whose longer side is more than X times the shorter (0: none).
      drop: Leave out images that, as stored, have one of these findings of validate --quality: DARK, LIGHT,
        BLURRY, LOW_INFORMATION, ODD_ASPECT_RATIO, GRAYSCALE.
      license: License of the dataset: an SPDX identifier such as CC-BY-4.0, a web address, or a name.
      citation: How to cite the dataset, best as BibTeX.
      creator: Who made the dataset: names separated by ; (org:NAME for an organization).
      url: Home page of the dataset.
      description: What the dataset contains, as Markdown.
      date_published: Date of publication: 2026-03-31.
      skip_formats: Formats to leave out on purpose, by name or extension: heic,psd; such images are filtered,
        and do not count as bad.
      max_bad_fraction: Publish nothing if quarantined / (written + quarantined) is larger.
      class_names: File with the class names in id order; images of other classes are quarantined.
      dedupe: exact: keep only the smallest key of files with equal bytes; near: keep only the largest of
        images that look alike, as validate --quality finds them.
      max_per_class: Convert at most the N images of each class with the lowest hashes (0: all).
      limit: Convert only the N images with the lowest hashes (0: all).
      verify: fast: framing, CRCs, counts, checksums; full: also decode every image; quality: also image
        statistics.
      plan_from: Reuse the plan of this dataset.json: settings, labels and shard counts.
      overwrite: Replace the dataset at --output.
      resume: Finish an interrupted run.

    Returns:
      A forecast of what `convert` would write with the same settings.

    Raises:
      UsageError: If the settings or the input are wrong.
      EngineError: If the engine, the storage or the machine failed.
    """

from shardwright.pipelines.results import RebuildResult
def rebuild(
    job: str | PathLike[str] = '',
    *,
    input: str | PathLike[str] | Sequence[str | PathLike[str]] | Mapping[str, str | PathLike[str]] = (),
    output: str | PathLike[str] = '',
    source: str = 'auto',
    layout: str | PathLike[str] = 'classification',
    image_root: str | PathLike[str] = '',
    mask_dir: str | PathLike[str] = '',
    confine: bool = False,
    image_column: str = '',
    label_column: str = '',
    split_column: str = '',
    group_column: str = '',
    sha256_column: str = '',
    extra_columns: str | Mapping[str, str] = '',
    label_separator: str = '',
    label_regex: str = '',
    label_depth: str | int = '1',
    folders: Literal['auto', 'classes', 'splits', 'ignore'] = 'auto',
    unlabelled: Literal['quarantine', 'keep'] = 'quarantine',
    rename_labels: str | PathLike[str] | Mapping[str, str] = '',
    keep_labels: str | PathLike[str] = '',
    bad_boxes: Literal['drop', 'clip', 'fail'] = 'drop',
    missing_annotations: Literal['fail', 'empty'] = 'fail',
    pixel_shape: str = '',
    splits: str | Mapping[str, Any] = 'train=1',
    split_mode: Literal['hash', 'exact', 'stratified'] = 'hash',
    folds: int = 0,
    split_by: str = '',
    seed: int = 0,
    shard_size: str | int = '128MB',
    shards: str | int | Mapping[str, int] = '',
    compression: Literal['none', 'gzip', 'zlib'] = 'none',
    map: str = '',
    resize: str | int | Sequence[int] = '',
    fit: Literal['stretch', 'contain', 'cover', 'fit', 'pad'] = 'stretch',
    resample: Literal['nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos'] = 'bilinear',
    image_format: Literal['keep', 'jpeg', 'png', 'webp', 'raw', ''] = '',
    quality: int = 95,
    color: Literal['rgb', 'gray', 'keep'] = 'rgb',
    depth: Literal['8', 'keep'] = '8',
    channels: int = 0,
    white: int = 0,
    background: str = 'white',
    strip_metadata: bool = False,
    damaged: Literal['quarantine', 'keep'] = 'quarantine',
    max_pixels: int = 89478485,
    max_bytes: str | int = '256MB',
    bounds: str | Mapping[str, int] = '',
    include: str = '',
    exclude: str = '',
    min_bytes: str | int = '',
    min_side: int = 0,
    max_aspect: float = 0.0,
    drop: str = '',
    license: str = '',
    citation: str = '',
    creator: str = '',
    url: str = '',
    description: str = '',
    date_published: str = '',
    skip_formats: str = '',
    max_bad_fraction: float = 0.01,
    class_names: str | PathLike[str] = '',
    dedupe: Literal['none', 'exact', 'near'] = 'none',
    max_per_class: int = 0,
    limit: int = 0,
    verify: Literal['fast', 'full', 'quality', 'none'] = 'fast',
    plan_from: str | PathLike[str] = '',
    keep: int = 5,
    keep_days: float = 0.0,
    verify_sources: bool = False,
    scrub: float | str = 0.03333333333333333,
    lease_minutes: float = 60.0,
    wait_minutes: float = 0.0,
    log_format: str = '',
    beam_options: Any = None,
    progress: bool = False,
) -> RebuildResult:
    r"""Rebuilds a dataset: the same as `shardwright rebuild`, as a function.

    Settings that are given override those of the job file.

    Args:
      job: Job file; empty if the settings contain everything.
      wait_minutes: Minutes to wait for another rebuild to finish.
      log_format: Format of the log on stderr, with a line for each stage: text or json; empty for no log.
      beam_options: Beam's PipelineOptions, or a list of its command-line options; they override the job file.
      progress: Whether to show progress on stderr.
      input: A folder, file or archive that contains or lists images; repeatable; NAME=PATH puts NAME/ before
        the keys.
      output: The dataset directory to write.
      source: The kind of input; auto detects it and prints what it detected.
      layout: The record layout: a name that `shardwright layouts` lists, or a file LAYOUT.yaml.
      image_root: Folder at which relative paths in a manifest or an annotation file start; default: its own
        folder.
      mask_dir: Folder with a mask for each image, with the same name.
      confine: Read images and masks only inside an input's own folder or bucket, --image_root and --mask_dir,
        wherever a manifest, an annotation file or a symbolic link points.
      image_column: Column of a manifest with the image paths, or of a Parquet or Arrow file with the images.
      label_column: Column of a manifest with the class names or numbers.
      split_column: Column of a manifest with the splits.
      group_column: Column of a manifest with groups; images of a group stay in one split.
      sha256_column: Column of a manifest with the sha256 of the files.
      extra_columns: Columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32,
        int64, uint64, float, double, string or bytes).
      label_separator: Separator between the classes of an image that has several, such as |.
      label_regex: Regex for file names: '(?P<label>[a-z]+)\d+\.jpg'; also (?P<split>...) and (?P<group>...).
      label_depth: Number of folders in a class name: 1, 2 (animals/cat), 3, ..., all, or last for only the
        innermost.
      folders: What the folders at the top are: classes; splits (those named train, validation, test, ...,
        with or without class folders inside; others are left out); ignore (their names have no meaning); auto
        decides, and fails if they could be either.
      unlabelled: Images without a class: quarantine them, or keep them with label -1.
      rename_labels: old=new,... or a file with one old=new per line.
      keep_labels: File with the class names to keep, after renaming; images of other classes are filtered.
      bad_boxes: Boxes outside the image, inverted, empty or without a class: drop them, clip those that
        overlap the image, or fail the image.
      missing_annotations: Images without their annotation file, such as VOC's XML or LabelMe's JSON: fail
        them, or store them without objects (YOLO always does).
      pixel_shape: Shape of raw pixels, if the source does not have it: 32x32x3 (height, width, channels).
      splits: Shares such as train=0.8,validation=0.1,test=0.1; ignored if the source names the splits, unless
        it is TFRecords, Parquet files, arrays or archives named by split, which are divided anew.
      split_mode: hash: shares are met on average; exact: each split gets its number of images; stratified:
        each split gets its share of every class. No image changes its split as the data grows.
      folds: Number of folds for cross-validation in each split; records store their fold, and the loader
        selects with fold=N (0: no folds).
      split_by: Regular expression for keys: images with the same first group (or match) stay in one split.
      seed: Seed of the hashes that decide split, shard and order.
      shard_size: Target size of a shard (MB = 10^6 bytes).
      shards: A fixed number of shards: 8 (in each split) or train=8,test=1.
      compression: Compression of the shards.
      map: Your own function, which changes, multiplies or drops each decoded image before it is resized.
      resize: Target size in pixels: 224 (= 224x224) or WxH.
      fit: How an image is fitted to the target size (Pillow's ImageOps terms).
      resample: The resampling filter.
      image_format: Format of the stored images; default: jpeg when resizing, else keep (the original bytes if
        nothing has to change).
      quality: Quality of JPEG (4:2:0) and WebP, 1 to 100.
      color: Channels: rgb, gray, or keep (grayscale images stay grayscale).
      depth: Bits per channel: 8 (everything is scaled to 8 bits), or keep (16 bits stay 16 bits, and
        floating-point numbers stay 32-bit floats).
      channels: Store all N channels of each image as they are in its file, as raw pixels; for TIFF and arrays
        with 2 to 16 channels (0: --color decides).
      white: Sample that becomes white when 16-bit images are scaled to 8 bits, such as 4095 for 12-bit scans;
        images with larger ones are quarantined (0: 65535, unless all images are dark).
      background: Color under transparent pixels and around padded images.
      strip_metadata: Remove EXIF, GPS and comments from kept originals.
      damaged: Images whose decoder reports missing or damaged data: quarantine them, or keep them with the
        pixels that the decoder makes up.
      max_pixels: Quarantine images with more pixels (width x height), without decoding them (Pillow's limit).
      max_bytes: Quarantine larger source files without reading them.
      bounds: How many parts an image file may have, by the code with which it is quarantined otherwise:
        TOO_MANY_SCANS=500,...; docs/dataset.md lists codes and defaults.
      include: Take only images whose key matches a pattern, such as cats/*.jpg, or that a file lists by key
        or sha256 (@FILE, one per line); others are filtered.
      exclude: Leave out images whose key matches a pattern, such as drafts/, or that a file lists by key or
        sha256 (@FILE, one per line), such as a list of opt-outs.
      min_bytes: Leave out smaller source files.
      min_side: Leave out images whose shorter side has fewer pixels (0: none).
      max_aspect: Leave out images whose longer side is more than X times the shorter (0: none).
      drop: Leave out images that, as stored, have one of these findings of validate --quality: DARK, LIGHT,
        BLURRY, LOW_INFORMATION, ODD_ASPECT_RATIO, GRAYSCALE.
      license: License of the dataset: an SPDX identifier such as CC-BY-4.0, a web address, or a name.
      citation: How to cite the dataset, best as BibTeX.
      creator: Who made the dataset: names separated by ; (org:NAME for an organization).
      url: Home page of the dataset.
      description: What the dataset contains, as Markdown.
      date_published: Date of publication: 2026-03-31.
      skip_formats: Formats to leave out on purpose, by name or extension: heic,psd; such images are filtered,
        and do not count as bad.
      max_bad_fraction: Publish nothing if quarantined / (written + quarantined) is larger.
      class_names: File with the class names in id order; images of other classes are quarantined.
      dedupe: exact: keep only the smallest key of files with equal bytes; near: keep only the largest of
        images that look alike, as validate --quality finds them.
      max_per_class: Convert at most the N images of each class with the lowest hashes (0: all).
      limit: Convert only the N images with the lowest hashes (0: all).
      verify: fast: framing, CRCs, counts, checksums; full: also decode every image; quality: also image
        statistics.
      plan_from: Reuse the plan of this dataset.json: settings, labels and shard counts.
      keep: Number of published versions to keep, 0 for all; the latest version and pinned versions always
        stay.
      keep_days: Younger versions also stay, in days.
      verify_sources: Read and hash every source instead of trusting its size and time.
      scrub: Share of the latest version's shards to read again, such as 0.1, or 1 for all; damaged shards are
        rebuilt from the source (default: 1/30, which reads all within 30 nights).
      lease_minutes: Minutes without a sign of life after which another run takes over.

    Returns:
      The result of the rebuild.

    Raises:
      UsageError: If the job, its settings or the input are wrong; no version was created.
      DataRefused: If a gate refused the version; the latest version stays.
      NotRun: If Beam's options only describe the job (a template, a dry run).
      EngineError: If the engine, the storage or the machine failed; run again.
    """
