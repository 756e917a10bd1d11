"""Requests sent again have one effect and one answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lanewarden.errors import Reason, Refusal
from lanewarden.store import Store, UnitOfWork
from lanewarden.store.requests import once, prune
from tests.contract.test_store_open import open_at
from tests.contract.test_store_units import EMIT, add, bodies


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_at(tmp_path / "tests.sqlite3")


def request(
    body: str, *, request_id: str = "r1", method: str = "Steer", digest: bytes = b"d1", now_ms: int = 5
) -> Callable[[UnitOfWork], bytes]:
    """A unit that adds a note once per request id and answers with the note's body."""

    def work(uow: UnitOfWork) -> bytes:
        def respond() -> bytes:
            add(body)(uow)
            return body.encode()

        return once(uow, request_id=request_id, method=method, digest=digest, respond=respond, now_ms=now_ms)

    return work


def test_same_request_gets_the_first_answer(store: Store, tmp_path: Path) -> None:
    """The same id and content returns the first response and has one effect, also after a restart."""
    assert store.write_now(request("a"), emitter=EMIT) == b"a"
    assert store.write_now(request("changed"), emitter=EMIT) == b"a"
    store.close()
    again = open_at(tmp_path / "tests.sqlite3")
    assert again.write_now(request("changed"), emitter=EMIT) == b"a"
    assert bodies(again) == ["a"]


@pytest.mark.parametrize("other", [{"digest": b"d2"}, {"method": "Cancel"}])
def test_id_with_other_content_is_refused(store: Store, other: dict[str, object]) -> None:
    """The same id with other content or another method fails by its own reason and changes nothing."""
    store.write_now(request("a"), emitter=EMIT)
    with pytest.raises(Refusal) as refused:
        store.write_now(request("b", **other), emitter=EMIT)  # type: ignore[arg-type]
    assert refused.value.reason is Reason.REQUEST_ID_REUSED
    assert bodies(store) == ["a"]


def test_failed_request_may_be_sent_again(store: Store) -> None:
    """A request that raised left no answer behind: the same id works once the cause is gone."""

    def fails(uow: UnitOfWork) -> bytes:
        return once(uow, request_id="r1", method="Steer", digest=b"d1", respond=lambda: _fail(), now_ms=1)

    with pytest.raises(ZeroDivisionError):
        store.write_now(fails, emitter=EMIT)
    assert store.write_now(request("a"), emitter=EMIT) == b"a"


def test_prune_forgets_the_oldest_within_its_bound(store: Store) -> None:
    """Pruning removes requests older than the stamp, oldest first, never more than asked."""
    for n in range(6):
        store.write_now(request(f"n{n}", request_id=f"r{n}", now_ms=100 - n), emitter=EMIT)

    def left() -> list[str]:
        rows = store.read(lambda c: c.query("SELECT request_id FROM request_log ORDER BY request_id"))
        return [row["request_id"] for row in rows]

    assert store.write_now(lambda uow: prune(uow, 99, 2), emitter=EMIT) == 2
    assert left() == ["r0", "r1", "r2", "r3"]
    assert store.write_now(lambda uow: prune(uow, 99, 100), emitter=EMIT) == 2
    assert left() == ["r0", "r1"]


def _fail() -> bytes:
    raise ZeroDivisionError
