"""Our histogram: what Prometheus scrapes of it is what the library's own would say."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from structured_server.histogram import Histogram

BOUNDS = (0.1, 0.5, 1.0, 2.5)
disable_created_metrics()  # type: ignore[no-untyped-call]  # as the server does

values = st.floats(0, 5) | st.sampled_from(BOUNDS)


@given(seen=st.lists(st.tuples(st.sampled_from(["a", "b"]), values)))
def test_it_says_what_the_librarys_histogram_says(seen: list[tuple[str, float]]) -> None:
    mine, theirs = CollectorRegistry(), CollectorRegistry()
    ours = Histogram("seconds", "How long.", ["kind"], buckets=BOUNDS, registry=mine)
    reference = prometheus_client.Histogram("seconds", "How long.", ["kind"], buckets=BOUNDS, registry=theirs)
    for kind, value in seen:
        ours.labels(kind).observe(value)
        reference.labels(kind).observe(value)
    assert generate_latest(theirs) == generate_latest(mine)


def test_without_labels_it_is_there_before_anything_is_observed() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("seconds", "How long.", buckets=BOUNDS, registry=registry)
    assert 0 == registry.get_sample_value("seconds_count")
    with histogram.time():
        pass
    assert 1 == registry.get_sample_value("seconds_bucket", {"le": "0.1"})


def test_two_metrics_may_not_have_one_name() -> None:
    registry = CollectorRegistry()
    Histogram("seconds", "How long.", buckets=BOUNDS, registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Histogram("seconds", "How long.", buckets=BOUNDS, registry=registry)
