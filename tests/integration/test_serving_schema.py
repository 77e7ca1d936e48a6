"""The API against its OpenAPI description: valid and invalid requests (Schemathesis)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from headwise.serving.limits import Limits
from tests.generators import served_generator
from tests.servers import Running, running, served
from tests.unit.tasks.test_generator import make_generator

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def server(trained_run: Path) -> Iterator[Running]:
    with running([served(trained_run)]) as server:
        yield server


@pytest.fixture(scope="module")
def generation_server() -> Iterator[Running]:
    with running([served_generator(make_generator())], limits=Limits(cost=300)) as server:
        yield server


def ask_everything(server: Running, examples: int) -> list[str]:
    """Ask for every operation of the description, rightly and wrongly; return what was asked."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    asked = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        for mode in GenerationMode:
            statuses = set()

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate,),
            )
            def check(case: schemathesis.Case[Any]) -> None:
                answer = case.call()
                statuses.add(answer.status_code)  # noqa: B023
                assert answer.status_code < 500, answer.text
                assert answer.status_code < 400 or answer.json()["error"]
                case.validate_response(answer, checks=CHECKS)

            try:
                check()
            except Unsatisfiable:
                continue  # There is no wrong way to ask for this.
            asked.append(f"{operation.label} {mode.name} {sorted(statuses)}")
    return asked


def test_generated_requests_cause_no_server_errors(server: Running) -> None:
    asked = ask_everything(server, examples=12)
    assert {each.split()[1] for each in asked} >= {"/translate", "/v1/translate", "/v1/attention"}


def test_generated_requests_to_a_language_model_cause_no_server_errors(
    generation_server: Running,
) -> None:
    asked = ask_everything(generation_server, examples=12)
    assert {each.split()[1] for each in asked} >= {"/v1/generate", "/v1/completions"}


@pytest.mark.slow
def test_many_generated_requests_cause_no_server_errors(
    server: Running, generation_server: Running
) -> None:
    ask_everything(server, examples=500)
    ask_everything(generation_server, examples=500)
