"""Which spans are kept: decided as the SDK decides it, before anything is made for a span, and for the whole trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from random import Random
from typing import Final

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lanewarden.telemetry import TRACEPARENT, TelemetrySettings, is_kept, valid_traceparent
from lanewarden.telemetry import sampling as otel_sampling
from lanewarden.telemetry.otel import OtelTelemetry
from lanewarden.telemetry.sampling import ALL, Sampling
from tests.ports import free_port

SAMPLERS: Final = (
    ("", ""),
    *(("always_on", ""), ("always_off", ""), ("traceidratio", "0.25"), ("parentbased_always_on", "")),
    *(("parentbased_always_off", ""), ("parentbased_traceidratio", "0.1"), ("parentbased_traceidratio", "1")),
    *(("parentbased_traceidratio", "0"), ("no_such_sampler", ""), ("traceidratio", "nonsense")),
)


@pytest.fixture(params=SAMPLERS, ids=lambda each: "=".join(filter(None, each)) or "unset")
def sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """What the SDK makes of the variables."""
    name, argument = request.param
    for variable, value in (("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)):
        monkeypatch.setenv(variable, value) if value else monkeypatch.delenv(variable, raising=False)
    return TracerProvider(shutdown_on_exit=False).sampler


@pytest.fixture
def telemetry(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtelTelemetry]:
    """Telemetry with the same variables, towards nobody."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.05")
    made = OtelTelemetry("test", "i-1", TelemetrySettings(endpoint=f"http://127.0.0.1:{free_port()}"))
    yield made
    made.shutdown()


def traceparents() -> list[str]:
    """Some of each kind, and the bounds of a quarter and of a tenth."""
    random = Random(7)
    bound = round(0.25 * ALL), round(0.1 * ALL)
    lows = [random.getrandbits(64) for _ in range(100)] + [each + off for each in bound for off in (-1, 0, 1)]
    return [
        f"00-{random.getrandbits(64):016x}{low:016x}-{'b' * 16}-{flags}"
        for low in (0, ALL - 1, *lows)
        for flags in ("00", "01", "02", "03")
    ]


def test_what_is_kept_is_what_the_sdk_keeps(sampler: Sampler, telemetry: OtelTelemetry) -> None:
    """For every sampler of the variables, trace id and parent: the flags of a span are those of the SDK's own span."""
    tracer = TracerProvider(sampler=sampler, shutdown_on_exit=False).get_tracer("test")
    for traceparent in traceparents():
        context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        theirs = tracer.start_span("x", context=context).get_span_context()
        ours = telemetry.child(traceparent)
        assert ours[:35] == traceparent[:35] == f"00-{theirs.trace_id:032x}"
        assert ours[53:] == f"{theirs.trace_flags:02x}", traceparent
        assert (ours[36:52] == traceparent[36:52]) is not is_kept(ours), "a span that is kept has an id of its own"


def test_a_root_is_kept_by_its_own_trace_id(sampler: Sampler, telemetry: OtelTelemetry) -> None:
    """A call without a trace gets one, kept or not as the SDK would have it, and it is known to what the call does."""

    def served() -> str:
        with telemetry.server_span("x/Y", ""):
            return TRACEPARENT.get()

    for _ in range(50):
        own = copy_context().run(served)  # the trace of a call stays with the task that serves it
        assert valid_traceparent(own) == own
        decision = sampler.should_sample(None, int(own[3:35], 16), "x/Y").decision
        assert is_kept(own) is decision.is_sampled()  # type: ignore[no-untyped-call]


class ByName(Sampler):
    """A sampler of somebody's, which says that it is like ours in nothing."""

    def should_sample(self, parent_context: object, trace_id: int, *more: object, **named: object) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if trace_id % 3 == 0 else Decision.DROP)

    def get_description(self) -> str:
        return "EveryThird"


def bound_is_one_off(patch: pytest.MonkeyPatch) -> None:
    """One trace id too many is kept."""
    bound = otel_sampling._bound
    patch.setattr(otel_sampling, "_bound", lambda keeps: bound(keeps) + 1)


def parents_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Each span is judged as a root is."""
    always, keeps = Sampling.always, Sampling.keeps
    patch.setattr(Sampling, "always", lambda sampling, parent: always(sampling, None))
    patch.setattr(Sampling, "keeps", lambda sampling, trace_id, parent: keeps(sampling, trace_id, None))


@pytest.mark.parametrize("sampler", [("parentbased_traceidratio", "0.1"), ("traceidratio", "0.25")], indirect=True)
@pytest.mark.parametrize("mutant", [bound_is_one_off, parents_are_ignored])
def test_each_mutant_is_found_out(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Where it makes a difference; a sampler that ignores parents itself has nothing to get wrong there."""
    mutant(monkeypatch)
    telemetry = OtelTelemetry("test", "i-1", TelemetrySettings(endpoint=f"http://127.0.0.1:{free_port()}"))
    wrong = mutant is bound_is_one_off or "Parent" in sampler.get_description()
    try:
        if wrong:
            with pytest.raises(AssertionError):
                test_what_is_kept_is_what_the_sdk_keeps(sampler, telemetry)
        else:
            test_what_is_kept_is_what_the_sdk_keeps(sampler, telemetry)
    finally:
        telemetry.shutdown()


OTHERS: Final = {"own": ByName(), "inside": ParentBased(ByName()), "known": ParentBased(ALWAYS_ON)}


@pytest.mark.parametrize("sampler", OTHERS.values(), ids=OTHERS)
def test_another_sampler_is_asked_each_time(sampler: Sampler) -> None:
    """One that is not known to decide by a bound is asked about each span, also inside of one that is known."""
    sampling = Sampling(sampler)
    for trace_id in range(1, 30):
        wanted = sampler.should_sample(None, trace_id, "").decision is Decision.RECORD_AND_SAMPLE
        assert sampling.keeps(trace_id, None) is wanted
