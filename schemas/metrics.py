"""The names of the metrics that every runner counts during a conversion.

Counters: `images_read`, `images_on_background` (images that show the background color), `bytes_read`,
  `bytes_written`, `files_OUTCOME`, `quarantined_REASON`, `records_SPLIT`. Distributions with one value per
  image: `source_bytes`, `decode_us` (microseconds).
"""

from __future__ import annotations

#: Beam's namespace for all of these metrics.
NAMESPACE = "shardwright"
