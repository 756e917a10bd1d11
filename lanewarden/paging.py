"""Pages of listings: a bounded size, and a token that says where to go on."""

from __future__ import annotations

from typing import Final

from lanewarden.errors import invalid

PAGE_SIZE_DEFAULT: Final = 100


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
