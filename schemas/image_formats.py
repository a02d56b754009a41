"""The names of all image formats that are detected, and the extensions of their files."""

from __future__ import annotations

from shardwright.schemas.errors import nearest

#: Longest side that a stored format can have, in pixels; formats without an entry have no limit.
MAX_STORED_SIDE = {"jpeg": 65_500, "webp": 16_383}

#: Formats that are decoded, with their extensions.
SUPPORTED_KINDS = {
    "jpeg": frozenset(("jpg", "jpeg", "jpe", "jfif", "mpo")),
    "png": frozenset(("png", "apng")),
    "webp": frozenset(("webp",)),
    "gif": frozenset(("gif",)),
    "bmp": frozenset(("bmp", "dib")),
    "tiff": frozenset(("tif", "tiff")),
    "avif": frozenset(("avif",)),
    "ppm": frozenset(("ppm", "pgm", "pbm", "pnm")),
    "heif": frozenset(("heic", "heif", "heics", "heifs", "hif", "avci")),
    "jpeg_xl": frozenset(("jxl",)),
    "jpeg2000": frozenset(("jp2", "j2k", "jpf", "jpx", "j2c", "jpc", "jph")),
}

#: Extensions of camera raw formats. Many of these are TIFFs whose first picture is a small preview, and whose
#: pixels only raw converters can read.
_CAMERA_RAW = """3fr arw bay cr2 cr3 crw dcr dng erf fff iiq k25 kdc mef mos mrw nef nrw orf pef raf rw2 rwl
    sr2 srf srw x3f"""
#: Image formats that are detected but not decoded, with their extensions. Extensions that other kinds of
#: files use too (`.raw`, `.hdr`, `.pcd`, `.rgb`) are missing on purpose: for these, the content decides.
UNSUPPORTED_KINDS = {
    "camera_raw": frozenset(_CAMERA_RAW.split()),
    "jpm": frozenset(("jpm",)),
    "jpeg_xr": frozenset(("jxr", "wdp", "hdp")),
    "jpeg_ls": frozenset(("jls",)),
    "psd": frozenset(("psd", "psb")),
    "xcf": frozenset(("xcf",)),
    "svg": frozenset(("svg", "svgz")),
    "eps": frozenset(("eps", "epsf")),
    "wmf": frozenset(("wmf", "emf")),
    "ico": frozenset(("ico",)),
    "cur": frozenset(("cur",)),
    "icns": frozenset(("icns",)),
    "tga": frozenset(("tga", "vda", "icb")),
    "pcx": frozenset(("pcx", "dcx")),
    "dds": frozenset(("dds",)),
    "qoi": frozenset(("qoi",)),
    "bpg": frozenset(("bpg",)),
    "flif": frozenset(("flif",)),
    "farbfeld": frozenset(),
    "mng": frozenset(("mng", "jng")),
    "pam": frozenset(("pam",)),
    "pfm": frozenset(("pfm",)),
    "openexr": frozenset(("exr",)),
    "radiance": frozenset(),
    "fits": frozenset(("fits", "fts")),
    "dicom": frozenset(("dcm", "dicom")),
    "sgi": frozenset(("sgi",)),
    "sun_raster": frozenset(),
    "xbm": frozenset(("xbm",)),
    "xpm": frozenset(("xpm",)),
}
#: Formats without a signature that all of their files have. They are detected by the extension alone.
WITHOUT_SIGNATURE = frozenset(("camera_raw", "tga", "pcx", "svg", "wmf", "dicom"))
#: Extensions of the formats that are decoded.
EXTENSIONS = frozenset().union(*SUPPORTED_KINDS.values())
#: Extension -> its format, for formats that are not decoded.
KIND_OF_EXTENSION = {
    extension: kind for kind, extensions in UNSUPPORTED_KINDS.items() for extension in extensions
}
_KIND_OF_NAME = {
    name: kind
    for kind, extensions in {**SUPPORTED_KINDS, **UNSUPPORTED_KINDS}.items()
    for name in (kind, *extensions)
}


def parse_formats(text: str) -> frozenset[str]:
    """Parses a list of image formats, each by its name or by an extension of its files.

    >>> sorted(parse_formats("HEIC, .dng"))
    ['camera_raw', 'heif']

    Raises:
      ValueError: If a format is not known.
    """
    formats = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name = item.lower().lstrip(".").replace(" ", "_").replace("-", "_")
        if name not in _KIND_OF_NAME:
            close = nearest(name, sorted(_KIND_OF_NAME))
            advice = close or "; write the extension of its files, such as heic"
            raise ValueError(f"there is no image format {item!r}{advice}")
        formats.add(_KIND_OF_NAME[name])
    return frozenset(formats)


#: Stored format -> value of `image/format`.
FORMAT_NAMES = {"jpeg": "jpg", "png": "png", "webp": "webp", "raw": "raw"}
