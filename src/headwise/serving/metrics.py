"""Figures for Prometheus, in a registry of their own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """What the server counts. None of it depends on what users write."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "headwise_requests_total",
            "Requests answered.",
            ("route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "headwise_request_seconds",
            "Seconds from a request's header to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "headwise_waiting_sentences",
            "Sentences that wait for a model.",
            ("model",),
            registry=self.registry,
        )
        self.batches = Histogram(
            "headwise_batch_sentences",
            "Sentences that were under way together, whenever there was news of some.",
            ("model",),
            buckets=_SENTENCES,
            registry=self.registry,
        )
        self.search_seconds = Counter(
            "headwise_search_seconds_total",
            "Seconds in which a model had something under way.",
            ("model",),
            registry=self.registry,
        )
        self.source_tokens = Counter(
            "headwise_source_tokens_total",
            "Source tokens searched.",
            ("model",),
            registry=self.registry,
        )
        self.given_up = Counter(
            "headwise_given_up_sentences_total",
            "Sentences that were given up before they were done.",
            ("model",),
            registry=self.registry,
        )
        self.failed_turns = Counter(
            "headwise_failed_turns_total",
            "Turns that a bug ended, and with them the requests of that moment.",
            ("model",),
            registry=self.registry,
        )
        self.ready = Gauge(
            "headwise_ready", "Whether requests are taken: 1 or 0.", registry=self.registry
        )

    def render(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self.registry)
