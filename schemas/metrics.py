"""The names of the metrics that every runner counts while it converts.

Counters: `images_read`, `images_on_background` (those that show the background colour), `bytes_read`,
`bytes_written`, `files_OUTCOME`, `quarantined_REASON`, `records_SPLIT`. Distributions, one value an image:
`source_bytes`, `decode_us` (microseconds).
"""

from __future__ import annotations

#: Of all of them, in Beam's terms.
NAMESPACE = "shardwright"
