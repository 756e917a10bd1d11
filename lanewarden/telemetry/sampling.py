"""What is kept, as the SDK's sampler decides it, at the price of a comparison.

Every sampler that ``OTEL_TRACES_SAMPLER`` can name without a package of somebody's decides by the lower half of the trace
id alone, once it is known whether there is a parent and whether that is kept: it keeps what lies below a bound. The bounds
are asked of the sampler itself, at the start. A sampler of another package is asked about every span.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

ALL: Final = 1 << 64
"""The bound below which every lower half of a trace id lies."""
_LOW: Final = ALL - 1
_PLAIN: Final = r"(AlwaysOnSampler|AlwaysOffSampler|TraceIdRatioBased\{[0-9.e-]+\})"
_BY_BOUND: Final = re.compile(
    rf"{_PLAIN}|ParentBased\{{root:{_PLAIN}(,(remote|local)Parent(Not)?Sampled:{_PLAIN}){{4}}\}}"
)


class Sampling:
    """Decides as ``sampler`` does. A parent is one of another process: none of these samplers makes a difference."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._bounds: dict[bool | None, int] | None = None
        if _BY_BOUND.fullmatch(sampler.get_description()):
            self._bounds = {
                parent: _bound(lambda low, parent=parent: self._asked(ALL | low, parent))  # type: ignore[misc]
                for parent in (None, False, True)
            }

    def keeps(self, trace_id: int, parent: bool | None) -> bool:
        """Whether to keep a span: a root, or one whose ``parent`` is kept or not."""
        if self._bounds is None:
            return self._asked(trace_id, parent)
        return trace_id & _LOW < self._bounds[parent]

    def always(self, parent: bool | None) -> bool | None:
        """The decision where it does not depend on the trace id; otherwise None."""
        if self._bounds is None or 0 < self._bounds[parent] < ALL:
            return None
        return self._bounds[parent] == ALL

    def _asked(self, trace_id: int, parent: bool | None) -> bool:
        context = None
        if parent is not None:
            flags = TraceFlags(TraceFlags.SAMPLED if parent else TraceFlags.DEFAULT)
            context = set_span_in_context(NonRecordingSpan(SpanContext(trace_id, 1, True, flags)))
        return self._sampler.should_sample(context, trace_id, "").decision is Decision.RECORD_AND_SAMPLE


def _bound(keeps: Callable[[int], bool]) -> int:
    low, high = 0, ALL
    while low < high:
        middle = (low + high) // 2
        if keeps(middle):
            low = middle + 1
        else:
            high = middle
    return low
