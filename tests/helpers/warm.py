"""Imports libraries in the process from which tests fork commands, so that no command waits for them.

It imports no modules of this project that copy names from others, because tests replace functions first.
"""

from __future__ import annotations

import gc
import importlib
import os

from helpers.fast_beam import speed_up

_LIBRARIES = (
    "PIL.ImageCms", "PIL.ImageDraw", "PIL.ImageFont", "PIL.ImageMath", "PIL.ImageSequence",
    "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin", "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin", "PIL._webp", "PIL._avif",
    "apache_beam.runners.direct.direct_runner", "apache_beam.runners.portability.fn_api_runner.fn_runner",
    "apache_beam.runners.worker.sdk_worker_main", "apache_beam.typehints.intrinsic_one_ops",
    "apache_beam.runners.portability.portable_runner", "cykooz_resizer", "imagecodecs._deflate",
    "imagecodecs._zlib", "jinja2",
    "prometheus_client", "rich.console", "rich.progress", "rich.table", "xml.parsers.expat",
)  # fmt: skip

for _name in _LIBRARIES:
    importlib.import_module(_name)
speed_up()
os.environ.pop("PYTHONPATH", None)  # it is needed only to find this module
gc.collect()
gc.freeze()
