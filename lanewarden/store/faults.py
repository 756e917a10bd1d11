"""What stops a store from opening, and the crash that tests ask for."""

from __future__ import annotations


class StoreUnusable(Exception):  # noqa: N818 - the name says what is true, not that somebody erred
    """The database or its directory cannot be used; nothing was changed.

    The text is one line for the person who starts the service: what is wrong, and what to do.
    """


class StateDirectoryBusy(Exception):  # noqa: N818 - the name says what is true, not that somebody erred
    """Another process holds the state directory; this one has written nothing. The text is one line."""


class SimulatedCrash(BaseException):
    """Raised by a failpoint to end the store as a crash at that point would.

    It is no ``Exception``, so that code which survives errors does not survive this.
    """
