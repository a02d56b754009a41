"""Objects of unknown size are not read to their end if they are larger than --max_bytes."""

from __future__ import annotations

import pytest
from helpers.storage.imitation import Imitation
from helpers.storage.scripted import Request, Response

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef

LIMIT = 10**6
SMALL = bytes(1000)


def test_a_large_object_is_not_read_to_its_end(imitation: Imitation) -> None:
    small, huge = imitation.holding(SMALL), imitation.holding(bytes(40 * LIMIT))

    def script(request: Request) -> Response:
        """Ends the connection early: who reads a large object to its end fails."""
        return huge(request)._replace(only=3 * LIMIT) if "huge" in request.path else small(request)

    with imitation.serve(script):
        assert read_image(ImageRef("small.jpg", imitation.path("small.jpg")), LIMIT) == SMALL
        with pytest.raises(ImageFault, match=r"more than 1.0 MB; raise --max_bytes") as caught:
            read_image(ImageRef("huge.jpg", imitation.path("huge.jpg")), LIMIT)
        assert caught.value.reason == "TOO_LARGE"


def test_a_cut_transfer_of_a_small_object_is_no_large_one(imitation: Imitation) -> None:
    hold = imitation.holding(SMALL)
    with imitation.serve(lambda request: hold(request)._replace(cut=int(request.number == 0))):
        assert storage.read_bytes(imitation.path("small.jpg"), limit=LIMIT) == SMALL
