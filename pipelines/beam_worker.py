"""Starts a worker process on this machine: Beam's own program, with less of Beam imported.

`python -m shardwright.pipelines.beam_worker MODULE` is `python -m MODULE`.
"""

from __future__ import annotations

import runpy
import sys

from shardwright.pipelines.beam_imports import import_beam, process_is_ours

if __name__ == "__main__":
    process_is_ours()
    import_beam()
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
