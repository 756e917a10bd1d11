"""Pages of listings: a bounded size, and a token that says where to go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

from lanewarden.errors import invalid

PAGE_SIZE_DEFAULT: Final = 100
PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Half of the largest message: the item that crosses the bound still fits."""

M = TypeVar("M", bound=Message)


def page_size(asked: int) -> int:
    """How many items a page has; the field's own rule bounds what may be asked."""
    return asked or PAGE_SIZE_DEFAULT


def parse_token(token: str) -> int | None:
    """The position a page begins after, or None for the first page.

    Raises:
        Refusal: REQUEST_INVALID when the token is not one that a listing has given.
    """
    if not token:
        return None
    if not (token.isascii() and token.isdigit() and len(token) <= 18):
        raise invalid(("page_token", "is not a next_page_token of this listing; leave it out for the first page"))
    return int(token)


def token_of(position: int | None) -> str:
    """The token of the next page; empty on the last."""
    return "" if position is None else str(position)


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
