"""Pages that fit into a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

from lanewarden.paging import token_of

PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Half of the largest message: the item that crosses the bound still fits."""

M = TypeVar("M", bound=Message)


def fitting(items: Iterable[tuple[int, M]], rows_max: int) -> tuple[list[M], str]:
    """The items of one page and the token of the next, from ``(position, message)`` pairs.

    Give one item more than the page may have, so that it is known whether there is a next page. A page ends early when its
    messages grow too large together; a caller that follows the tokens sees every item all the same.
    """
    page: list[M] = []
    size, last = 0, 0
    for position, message in items:
        if len(page) == rows_max or size > PAGE_BYTES_MAX:
            return page, token_of(last)
        page.append(message)
        size += message.ByteSize()
        last = position
    return page, ""
