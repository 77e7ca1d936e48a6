"""OpenAI's own client against our server: completions, streams, models and errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from headwise.tasks.language_model.generator import Generator
from tests.generators import served_generator
from tests.integration.test_generation_api import make_double
from tests.servers import running, wait_for

openai = pytest.importorskip("openai", reason="`make peers` installs openai")


@pytest.fixture(scope="module")
def generator() -> Generator:
    return make_double()


@pytest.fixture(scope="module")
def client(generator: Generator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    key = add_key(keys, "reader")
    with (
        running([served_generator(generator)], keys=Keys(keys)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client,
    ):
        yield client


def test_completions(client: Any, generator: Generator) -> None:
    expected = generator.generate("ban", count=2, seed=3, max_tokens=12)
    found = client.completions.create(
        model="lm", prompt="ban", n=2, seed=3, max_tokens=12, logprobs=2, user="reader"
    )
    assert [choice.text for choice in found.choices] == [each.text for each in expected.samples]
    for choice, sample in zip(found.choices, expected.samples, strict=True):
        assert choice.finish_reason == ("stop" if sample.is_ended else "length")
        assert len(choice.logprobs.tokens) == len(choice.logprobs.top_logprobs) == len(sample.ids)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    several = client.completions.create(model="lm", prompt=["ban", "kon"], max_tokens=2)
    assert [choice.index for choice in several.choices] == [0, 1]


def test_streams(client: Any, generator: Generator) -> None:
    fields = {"model": "lm", "prompt": "ban", "seed": 7, "max_tokens": 30}
    options = {"include_usage": True}
    *pieces, last = client.completions.create(**fields, stream=True, stream_options=options)
    text = "".join(piece.choices[0].text for piece in pieces)
    assert text == generator.generate("ban", seed=7, max_tokens=30).text
    assert last.usage == client.completions.create(**fields).usage
    stop = text[3:5]
    stopped = client.completions.create(**fields, stop=stop, stream=True)
    assert "".join(each.choices[0].text for each in stopped) == text[: text.index(stop)]


def test_a_stream_that_is_closed_stops(generator: Generator) -> None:
    with (
        running([served_generator(generator)]) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        fields = {"model": "lm", "prompt": "ban", "temperature": 0, "max_tokens": 50_000}
        with client.completions.create(**fields, stream=True) as stream:
            next(iter(stream))
        wait_for(lambda: not server.uvicorn.service._writers["lm"].num_searches)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["lm"]
    assert client.models.retrieve("lm").object == "model"
    with pytest.raises(openai.NotFoundError, match="no language model of that name") as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_errors(client: Any, generator: Generator, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"best_of": 4}, openai.BadRequestError, "best_of"),
        ({"prompt": [1, 2]}, openai.BadRequestError, "prompt"),
        ({"model": "other"}, openai.NotFoundError, "model"),
    ]
    for fields, kind, param in cases:
        with pytest.raises(kind, match=param) as caught:
            client.completions.create(**{"model": "lm", "prompt": "ban", **fields})
        assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    with pytest.raises(openai.AuthenticationError, match="an API key is needed"):
        client.with_options(api_key="").completions.create(
            model="lm", prompt="ban", extra_headers={"Authorization": ""}
        )
    with pytest.raises(openai.PermissionDeniedError, match="unknown API key"):
        client.with_options(api_key="wrong").completions.create(model="lm", prompt="ban")
    with (
        running([served_generator(generator)], limits=Limits(rate=3)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as other,
    ):
        other.completions.create(model="lm", prompt="ban", max_tokens=1)
        with pytest.raises(openai.RateLimitError, match="3 characters a minute"):
            other.completions.create(model="lm", prompt="ban", max_tokens=1)
