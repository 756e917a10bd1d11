"""Requests that may be sent again: one effect, one answer."""

from __future__ import annotations

from collections.abc import Callable

from lanewarden.errors import Reason, refuse
from lanewarden.store.unit import Connection, UnitOfWork


def once(
    uow: UnitOfWork,
    *,
    request_id: str,
    method: str,
    digest: bytes,
    respond: Callable[[], bytes],
    now_ms: int,
    before_repeat: Callable[[], None] = lambda: None,
) -> bytes:
    """Return the response of this request, carrying it out only the first time.

    ``respond`` performs the effect inside the same unit of work and returns the serialised response; if it
    raises, nothing is kept and the request may be sent again. Raises the refusal REQUEST_ID_REUSED if the id
    came before with another method or content. ``digest`` stands for the content; ``now_ms`` ages the row for
    :func:`prune`; ``before_repeat`` may refuse to repeat a response.
    """
    row = uow.one("SELECT method, digest, response FROM request_log WHERE request_id = ?", (request_id,))
    if row is not None:
        if (row["method"], row["digest"]) != (method, digest):
            raise refuse(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used for another request; give every new request a new UUID",
                request_id=request_id,
                first_method=row["method"],
            )
        before_repeat()
        return bytes(row["response"])
    response = respond()
    uow.execute(
        "INSERT INTO request_log (request_id, method, digest, response, created_ms) VALUES (?, ?, ?, ?, ?)",
        (request_id, method, digest, response, now_ms),
    )
    return response


def known(reader: Connection, request_id: str) -> bool:
    """Whether a request with this id was carried out."""
    return reader.one("SELECT 1 FROM request_log WHERE request_id = ?", (request_id,)) is not None


def prune(uow: UnitOfWork, older_than_ms: int, rows_max: int) -> int:
    """Forget at most ``rows_max`` requests made before ``older_than_ms``, oldest first; return how many."""
    return uow.execute(
        "DELETE FROM request_log WHERE rowid IN"
        " (SELECT rowid FROM request_log WHERE created_ms < ? ORDER BY created_ms LIMIT ?)",
        (older_than_ms, rows_max),
    ).rowcount
