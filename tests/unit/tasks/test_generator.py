"""The generator: cached, batched and streamed as if each sequence were computed alone."""

import math
import random
from pathlib import Path

import pytest
import torch

from headwise.config import Config, GenerateConfig, TextDataConfig, Vocab
from headwise.errors import CheckpointError, ConfigError, RequestError
from headwise.model import LanguageModel, build_model
from headwise.tasks.language_model.context import ContextModel, window_start
from headwise.tasks.language_model.generation import GenerationSettings, draw, search
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.scoring import TextScore, score_tokens
from headwise.tasks.language_model.text_tokenizer import TextTokenizer
from tests.conftest import VOCAB, model_config
from tests.small_runs import WORDS

CONTEXT = 10
VARIANTS: list[dict[str, object]] = [
    {"norm_order": "pre"},
    {"positions": "learned", "max_positions": CONTEXT},
]


def language_model(vocab: Vocab = VOCAB, /, **changes: object) -> LanguageModel:
    torch.manual_seed(7)
    model = build_model(model_config(**changes), vocab, "decoder").eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@torch.no_grad()
def next_logits(model: LanguageModel, ids: list[int], context: int = CONTEXT) -> torch.Tensor:
    """Recompute the logits after ids from the beginning of their window."""
    window = ids[window_start(len(ids), context) :]
    assert len(window) <= context
    logits: torch.Tensor = model(torch.tensor([window]))[0, -1].clone()
    logits[[VOCAB.pad, VOCAB.bos]] = -math.inf
    return logits


def test_a_full_window_begins_again_with_its_last_half() -> None:
    starts = [window_start(length, 10) for length in range(1, 24)]
    assert starts == [0] * 10 + [5] * 5 + [10] * 5 + [15] * 3
    assert [window_start(length, 3) for length in range(1, 9)] == [0, 0, 0, 2, 2, 4, 4, 6]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("context", [2, 3, CONTEXT])
@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_steps_equal_recomputation_of_the_window(
    variant: dict[str, object], context: int
) -> None:
    """Prompts of different lengths, beyond the context too, with rows that leave and repeat."""
    model = ContextModel(language_model(**variant), context)
    generator = random.Random(3)
    rows = [[generator.randrange(4, 23) for _ in range(n)] for n in (1, 4, 9, 10, 11, 26)]
    state, ids = model.start(rows)
    for step in range(25):
        logits, state = model.step(ids, state)
        for row, found in zip(rows, logits, strict=True):
            expected = next_logits(model.model, row, context)
            allowed = expected > -math.inf
            torch.testing.assert_close(found[allowed], expected[allowed], rtol=0, atol=1e-10)
        if step in (2, 7):
            chosen = [generator.randrange(len(rows)) for _ in range(5)]
            state, rows = state.select(torch.tensor(chosen)), [rows[n] for n in chosen]
        rows = [[*row, generator.randrange(4, 23)] for row in rows]
        ids = torch.tensor([row[-1] for row in rows])


def greedy_alone(model: LanguageModel, prompt: list[int], most: int) -> list[int]:
    ids = list(prompt)
    while len(ids) < len(prompt) + most:
        token = int(next_logits(model, ids).argmax())
        if token == VOCAB.eos:
            break
        ids.append(token)
    return ids[len(prompt) :]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_and_a_beam_of_one_take_the_most_probable_tokens(
    variant: dict[str, object],
) -> None:
    model = language_model(**variant)
    prompts = [[3], [3, 7, 9], [3, *range(4, 20)], [3, 5]]
    settings = GenerationSettings(temperature=0, max_tokens=31)
    found = draw(ContextModel(model, CONTEXT), prompts, [(n,) for n in range(4)], settings)
    expected = [greedy_alone(model, prompt, 31) for prompt in prompts]
    assert [list(each.ids) for each in found] == expected
    assert [each.is_ended for each in found] == [len(each) < 31 for each in expected]
    one = GenerationSettings(beam=1, alpha=0, max_tokens=31)
    for prompt, best in zip(prompts, found, strict=True):
        ((searched,),) = search(ContextModel(model, CONTEXT), [prompt], one)
        assert searched.log_prob >= best.log_prob - 1e-9 or searched.ids == best.ids


@pytest.mark.usefixtures("double")
def test_the_log_probability_is_the_windows_own() -> None:
    model, prompt = language_model(), [3, 7, 9]
    settings = GenerationSettings(max_tokens=30, stop_at_end=False)
    (found,) = draw(ContextModel(model, CONTEXT), [prompt], [(1,)], settings)
    assert len(found.ids) == 30
    assert not found.is_ended
    ids, total = list(prompt), 0.0
    with torch.no_grad():
        for token in found.ids:
            window = ids[window_start(len(ids), CONTEXT) :]
            total += float(model(torch.tensor([window]))[0, -1].log_softmax(0)[token])
            ids.append(token)
    assert found.log_prob == pytest.approx(total, abs=1e-9)


@pytest.mark.usefixtures("double")
def test_a_beam_is_the_same_with_and_without_others() -> None:
    model = ContextModel(language_model(), CONTEXT)
    prompts = [[3], [3, 7, 9], [3, *range(4, 20)]]
    settings = GenerationSettings(beam=3, count=2, max_tokens=25)
    together = search(model, prompts, settings)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = search(model, [prompt], settings)
        assert [each.ids for each in alone] == [each.ids for each in found]
        assert found[0].log_prob == pytest.approx(alone[0].log_prob, abs=1e-9)


def make_generator(context: int = CONTEXT) -> Generator:
    data = TextDataConfig(vocab_size=300, context=context)
    tokenizer = TextTokenizer.learn([" ".join(WORDS)] * 20, data)
    config: Config[TextDataConfig, GenerateConfig] = Config(
        task="language-model", data=data, model=model_config(), decode=GenerateConfig(max_tokens=40)
    )
    model = language_model(tokenizer.vocab, norm_order="pre")
    return Generator(model, tokenizer, config, name="test")


def test_what_is_drawn_depends_on_seed_prompt_and_draw_alone() -> None:
    generator = make_generator()
    prompts = ["ban", "bora kon", "", "dun\nban"]
    settings = generator.settings(seed=5, count=3)
    together = generator.generate_all(prompts, settings)
    for number, prompt in enumerate(prompts):
        (alone,) = generator.generate_all([prompt], settings, first=number)
        assert [s.ids for s in alone.samples] == [s.ids for s in together[number].samples]
    (fewer,) = generator.generate_all(["ban"], generator.settings(seed=5, count=2))
    assert [s.ids for s in fewer.samples] == [s.ids for s in together[0].samples[:2]]
    assert len({sample.ids for sample in together[0].samples}) == 3
    other = generator.generate("ban", seed=6)
    assert other.samples[0].ids != together[0].samples[0].ids
    again = generator.generate("ban", seed=5, count=3)
    assert [s.text for s in again.samples] == [s.text for s in together[0].samples]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_is_what_generate_returns(temperature: float) -> None:
    generator = make_generator()
    for prompt in ("ban", "", "ban \n", "€"):
        pieces = list(generator.stream(prompt, temperature=temperature, seed=3))
        assert "".join(pieces) == generator.generate(prompt, temperature=temperature, seed=3).text
        assert all(pieces)


def test_top_k_of_one_is_greedy() -> None:
    generator = make_generator()
    assert generator.generate("ban", top_k=1).text == generator.generate("ban", temperature=0).text


def test_a_document_ends_unless_it_may_not() -> None:
    generator = make_generator()
    for stop_at_end in (True, False):
        found = generator.generate(
            "ban", temperature=100, count=64, max_tokens=30, stop_at_end=stop_at_end
        )
        assert any(sample.is_ended for sample in found.samples) is stop_at_end
        for sample in found.samples:
            assert (len(sample.ids) < 30) is sample.is_ended


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature = -1.0 must be a number, 0 or more"),
        ({"temperature": math.nan}, "temperature = nan must be a number"),
        ({"top_p": 0.0}, "top_p = 0.0 must be above 0"),
        ({"top_k": -1}, "top_k = -1 must be 0 or more"),
        ({"max_tokens": 0}, "max_tokens = 0 must be from 1 to"),
        ({"beam": -1}, "beam = -1 must be from 0 to"),
        ({"count": 0}, "count = 0 must be from 1 to"),
        ({"beam": 2, "count": 3}, "count = 3 must be from 1 to 2, the beam"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make_generator().generate("ban", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompt", "message"), [("a\0b", "NUL"), ("\ud800", "surrogate pair")])
def test_prompts_that_are_no_text_are_refused(prompt: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make_generator().generate(prompt)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("length", [2, 7, 10, 11, 12, 40])
@pytest.mark.parametrize("part", [1, 3, 100])
def test_every_token_is_scored_once_with_half_a_context(length: int, part: int) -> None:
    model, generator = language_model(), random.Random(length)
    ids = [generator.randrange(23) for _ in range(length)]
    score = TextScore()
    parts = [ids[n : n + part] for n in range(0, length, part)]
    (*_, last) = score_tokens(model, parts, CONTEXT, score)
    expected, stride = 0.0, CONTEXT // 2
    with torch.no_grad():
        for place in range(1, length):
            # The window that first has this token: the first, or the one that ends soonest.
            number = max(0, -(-(place - CONTEXT) // stride))
            window = ids[number * stride : place]
            assert place <= CONTEXT or stride <= len(window) <= CONTEXT
            expected -= float(model(torch.tensor([window]))[0, -1].log_softmax(0)[ids[place]])
    assert score.nll == pytest.approx(expected, abs=1e-9)
    assert score.tokens == last == length - 1


def test_a_text_is_scored_by_tokens_words_and_bytes() -> None:
    generator = make_generator()
    text = "ban bön\nkon"
    score = generator.score(text)
    assert (score.words, score.num_bytes) == (3, 12)
    assert score.tokens == len(generator.tokenizer.encode(text)) + 1
    assert generator.perplexity(text) == pytest.approx(math.exp(score.nll / score.tokens))
    assert score.bits_per_byte == pytest.approx(score.nll / math.log(2) / 12)
    assert score.word_perplexity == pytest.approx(math.exp(score.nll / 3))


def test_nan_weights_are_an_error() -> None:
    generator = make_generator()
    generator.model.embedding.weight.data[:] = math.nan
    for temperature in (0.0, 1.0):
        with pytest.raises(CheckpointError, match="logits are NaN"):
            generator.generate("ban", temperature=temperature)
    with pytest.raises(CheckpointError, match="logits are NaN"):
        generator.perplexity("ban")


def test_another_tasks_run_is_refused(trained_run: Path) -> None:
    with pytest.raises(ConfigError, match="is a run of translation: use `headwise translate"):
        Generator.load(trained_run)
