"""Text in, text out: the Translator over a small run."""

import itertools
import math
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headwise import Translator
from headwise.config import Vocab
from headwise.data import Subwords
from headwise.decoding import Hypothesis, SamplingSettings, SearchSettings
from headwise.errors import CheckpointError, ConfigError, RequestError
from headwise.model import Transformer
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.sentences import split_sentences, split_to_fit
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import load_model
from tests.conftest import model_config

COUNT = SearchSettings(beam=1, stop="count")


@pytest.fixture(scope="module")
def run(trained_run: Path) -> Path:
    return trained_run


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run)


def lively_model(seed: int = 1) -> Transformer:
    """Make a model whose outputs differ between sources and end in eos."""
    torch.manual_seed(seed)
    model = Transformer(model_config(d_model=32, num_heads=4, d_k=8, d_v=8), Vocab.shared(50))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.eval()


def sources(count: int, seed: int = 5) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 15, (count,), generator=generator).tolist()
    return [torch.randint(4, 50, (n,), generator=generator).tolist() for n in lengths]


def greedy_by_hand(model: Transformer, source: list[int], limit: int) -> list[int]:
    """Take the most probable token again and again, computing everything anew each time."""
    src, said = torch.tensor([[*source, Vocab.eos]]), [Vocab.bos]
    while len(said) <= limit:
        logits = model(src, torch.tensor([said]))[0, -1]
        logits[[Vocab.pad, Vocab.bos]] = -math.inf
        token = int(logits.argmax())
        if token == Vocab.eos:
            break
        said.append(token)
    return said[1:]


@torch.no_grad()
def test_a_beam_of_one_that_counts_is_greedy_without_a_cache() -> None:
    model, inputs = lively_model(), sources(30)
    found = TorchEngine(model).translate(inputs, COUNT, 10)
    assert [list(hypotheses[0].ids) for hypotheses in found] == [
        greedy_by_hand(model, source, len(source) + 10) for source in inputs
    ]
    assert len({hypotheses[0].ids for hypotheses in found}) > 10, "they differ"


@pytest.mark.parametrize("beam", [1, 4])
def test_a_nan_in_one_sentence_leaves_its_neighbours_and_successors_alone(beam: int) -> None:
    model, (bad, *inputs) = lively_model(), sources(12)
    poison = 49
    inputs = [[token for token in source if token != poison] or [5] for source in inputs]
    embedding = model.source_embedding
    assert isinstance(embedding, torch.nn.Embedding)
    with torch.no_grad():
        embedding.weight = torch.nn.Parameter(embedding.weight.clone())
        embedding.weight[poison] = math.nan
    engine, settings = TorchEngine(model), SearchSettings(beam=beam)
    expected = [engine.translate([source], settings, 10)[0] for source in inputs]
    search = engine.search(settings, 10)
    found: dict[int, list[Hypothesis]] = {}
    # The sentence with the NaN comes first, so that the idle rows of later ones are copies of it.
    waiting = dict(enumerate(inputs))
    search.add({100: [*bad, poison]})
    while waiting or len(search):
        newcomers = [waiting.popitem() for _ in range(min(3, len(waiting)))]
        if newcomers:
            search.add(dict(newcomers))
        found |= dict(search.advance())
        if waiting and len(search) < 3:
            search.add({100 + len(found): [poison]})
    for number, hypotheses in enumerate(expected):
        assert [each.ids for each in found[number]] == [each.ids for each in hypotheses]
    assert found[100] == []
    with pytest.raises(CheckpointError, match="logits are NaN"):
        engine.translate([[5], [poison]], settings, 10)


def test_the_score_is_what_teacher_forcing_gives() -> None:
    engine, inputs = TorchEngine(lively_model()), sources(40)
    settings = SearchSettings(beam=4, nbest=4)
    found = engine.translate(inputs, settings, 5)
    pairs = [
        (source, list(hypothesis.ids))
        for source, hypotheses in zip(inputs, found, strict=True)
        for hypothesis in hypotheses
    ]
    assert len(pairs) == 160
    forced = [math.fsum(each) for each in engine.token_log_probs(pairs)]
    for expected, hypothesis in zip(forced, (h for hs in found for h in hs), strict=True):
        assert hypothesis.log_prob == pytest.approx(expected, abs=1e-5 * max(1, -expected))
        penalty = ((5 + len(hypothesis.ids) + 1) / 6) ** 0.6
        assert hypothesis.score == pytest.approx(hypothesis.log_prob / penalty, abs=1e-6)


def check_batchings(count: int, sizes: list[int]) -> None:
    """Translations do not depend on their neighbours, but where two are as good to 1e-5."""
    model, inputs = lively_model(), sources(count)
    settings, limits = SearchSettings(beam=4, nbest=2), 10
    alone = TorchEngine(model, batch_size=1).translate(inputs, settings, limits)
    near = 0
    for size in sizes:
        together = TorchEngine(model, batch_size=size).translate(inputs, settings, limits)
        for ours, theirs in zip(together, alone, strict=True):
            if ours[0].ids != theirs[0].ids:
                assert ours[0].score == pytest.approx(theirs[0].score, abs=1e-5)
                near += 1
    assert near <= count * len(sizes) // 100


def test_neighbours_change_nothing() -> None:
    check_batchings(100, [7, 64])


@pytest.mark.slow
def test_neighbours_change_nothing_in_a_thousand_sentences_and_five_batchings() -> None:
    check_batchings(1000, [2, 7, 32, 64, 200])


def test_one_at_a_time_is_exactly_alone() -> None:
    model, inputs = lively_model(), sources(20)
    engine = TorchEngine(model, batch_size=1)
    settings = SearchSettings(nbest=3)
    together = engine.translate(inputs, settings, 10)
    assert together == [engine.translate([source], settings, 10)[0] for source in inputs]


def test_outputs_begin_as_they_must() -> None:
    engine, inputs = TorchEngine(lively_model()), sources(20)
    free = engine.translate(inputs, SearchSettings(), 10)
    prefixes = [[7, 8, 9], [], [11]] * 6 + [[], [5]]
    begun = engine.translate(inputs, SearchSettings(), 10, prefixes)
    for prefix, with_it, without in zip(prefixes, begun, free, strict=True):
        assert list(with_it[0].ids[: len(prefix)]) == prefix
        if not prefix:
            assert with_it[0].ids == without[0].ids
    pairs = [(s, list(h[0].ids)) for s, h in zip(inputs, begun, strict=True)]
    forced = [math.fsum(each) for each in engine.token_log_probs(pairs)]
    assert [h[0].log_prob for h in begun] == pytest.approx(forced, rel=1e-5)


def test_few_logits_are_held_to_score_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = lively_model(), sources(20)
    pairs = list(zip(inputs, sources(20, seed=6), strict=True))
    expected = TorchEngine(model).token_log_probs(pairs)
    held: list[int] = []
    model.output.register_forward_hook(lambda _, __, logits: held.append(logits.shape[0]))
    monkeypatch.setattr("headwise.tasks.translation.torch_engine._CHUNK", 7)
    for some, all_at_once in zip(TorchEngine(model).token_log_probs(pairs), expected, strict=True):
        assert some == pytest.approx(all_at_once, rel=1e-5)
    assert max(held) == 7


def test_learned_positions_bound_the_output() -> None:
    torch.manual_seed(1)
    config = model_config(positions="learned", max_positions=12)
    engine = TorchEngine(Transformer(config, Vocab.shared(50)))
    (found,) = engine.translate([[5, 6, 7]], SearchSettings(beam=2, min_length=99), 50)
    assert len(found[0].ids) == 11


def test_what_is_sampled_depends_on_seed_and_key_alone() -> None:
    engine, inputs = TorchEngine(lively_model()), sources(12)
    keys = [(number, 0) for number in range(12)]

    def draw(numbers: list[int], seed: int = 1) -> list[list[tuple[int, ...]]]:
        found = engine.sample(
            [inputs[n] for n in numbers],
            SamplingSettings(seed=seed),
            10,
            [keys[n] for n in numbers],
            count=3,
            min_length=0,
        )
        return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found]

    everything = draw(list(range(12)))
    assert draw([5]) == [everything[5]]
    assert draw([11, 3]) == [everything[11], everything[3]]
    assert draw([5], seed=2) != [everything[5]]
    assert any(len(set(drawn)) > 1 for drawn in everything)


def test_sampling_with_one_choice_is_greedy_and_scores_are_the_models() -> None:
    engine, inputs = TorchEngine(lively_model()), sources(10)
    greedy = engine.translate(inputs, COUNT, 10)
    for settings in (
        SamplingSettings(top_k=1),
        SamplingSettings(top_p=1e-9),
        SamplingSettings(temperature=1e-4),
    ):
        keys = [(number, 0) for number in range(10)]
        drawn = engine.sample(inputs, settings, 10, keys, count=1, min_length=0)
        assert [d[0].ids for d in drawn] == [g[0].ids for g in greedy]
        for ours, theirs in zip(drawn, greedy, strict=True):
            assert ours[0].log_prob == pytest.approx(theirs[0].log_prob, abs=1e-4)


def test_texts_come_back_in_order_and_nothing_translates_to_nothing(translator: Translator) -> None:
    texts = ["bana dora", "", "kuti", "   ", "bana dora kuti bun", "\t"]
    results = translator.translate(texts)
    assert [result.source for result in results] == texts
    assert [bool(result.candidates) for result in results] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert [result.text for result in results][1::2] == ["", "", ""]
    assert results[2].text == translator.translate(["kuti"])[0].text != ""
    assert translator.translate([]) == []


def test_candidates_are_as_many_as_asked_for_best_first(translator: Translator) -> None:
    (result,) = translator.translate(["bana dora"], nbest=6)
    scores = [candidate.score for candidate in result.candidates]
    assert len(scores) == 6
    assert scores == sorted(scores, reverse=True)
    assert result.text == result.candidates[0].text
    assert len({candidate.ids for candidate in result.candidates}) == 6


def test_the_recipes_search_settings_are_the_defaults(translator: Translator) -> None:
    assert translator.settings() == SearchSettings(beam=4, alpha=0.6)
    assert translator.settings(beam=2, alpha=1.5, nbest=3).beam == 3
    for wrong in ({"beam": 0}, {"nbest": 0}, {"alpha": -1.0}, {"alpha": 11.0}, {"alpha": math.nan}):
        with pytest.raises(RequestError, match="at least|must be a number"):
            translator.translate(["bana"], **wrong)
    with pytest.raises(RequestError, match="NUL"):
        translator.translate(["ba\0na"])


def test_a_beam_of_one_is_greedy_whatever_the_recipe(translator: Translator, run: Path) -> None:
    assert translator.settings().stop == "bound"
    assert translator.settings(beam=1).stop == "count"
    assert translator.settings(beam=1, nbest=2).stop == "bound"
    counting = Translator.load(run, overrides=["decode.stop=count", "decode.beam=3"])
    assert counting.settings().stop == "count"
    assert counting.settings().beam == 3
    with pytest.raises(ConfigError, match=r"model.dropout=0.*only its \[decode\] settings"):
        Translator.load(run, overrides=["model.dropout=0"])


def test_translations_begin_as_they_must(translator: Translator) -> None:
    texts = ["bana dora", "", "kuti bun"]
    begun = translator.translate(texts, prefixes=["tib", "", ""])
    free = translator.translate(texts)
    assert begun[0].text.startswith("tib")
    assert not free[0].text.startswith("tib")
    assert [result.text for result in begun[1:]] == [result.text for result in free[1:]]
    with pytest.raises(RequestError, match="3 texts but 1 beginnings"):
        translator.translate(texts, prefixes=["tib"])
    with pytest.raises(RequestError, match="empty or translated in parts"):
        translator.translate([""], prefixes=["tib"])
    with pytest.raises(RequestError, match="longer than its translation may become"):
        translator.translate(["bana"], prefixes=["tib " * 100])
    model = replace(translator.config.model, positions="learned", max_positions=4)
    short = Translator(
        translator._engine,
        translator._source,
        translator._target,
        replace(translator.config, model=model),
        longest_source=3,
        name="short",
    )
    with pytest.raises(RequestError, match="longer than its translation may become"):
        short.translate(["b"], prefixes=["tib kun"])
    with pytest.raises(RequestError, match="when searching, not when sampling"):
        translator.translate(["bana"], prefixes=["tib"], sampling=SamplingSettings())


def test_paragraphs_are_translated_by_the_sentence(translator: Translator) -> None:
    paragraph = "Bana dora. Kuti bun don! Dan?"
    (whole,) = translator.translate([paragraph], split=True)
    assert [part.source.strip() for part in whole.parts] == ["Bana dora.", "Kuti bun don!", "Dan?"]
    alone = translator.translate(["Bana dora.", "Kuti bun don!", "Dan?"])
    assert whole.text == " ".join(part.text for part in alone).strip()
    assert whole.candidates[0].log_prob == pytest.approx(
        sum(a.candidates[0].log_prob for a in alone)
    )
    (single,) = translator.translate(["Bana dora."], split=True)
    assert (single.text, single.parts) == (alone[0].text, ())


def test_lines_stay_where_they_were(translator: Translator) -> None:
    bana, dora = (each.text for each in translator.translate(["bana", "dora"]))
    (found,) = translator.translate(["\n  \nbana\n\n  dora\n"], split=True)
    assert [line.strip() for line in found.text.split("\n")] == ["", "", bana, "", dora, ""]


def test_a_translation_is_traced_as_it_was_written(translator: Translator) -> None:
    """The same text may be cut into other tokens than those that were found."""
    (found,) = translator.translate(["bana dora"])
    letters = tuple(token for letter in "ti" for token in translator._target.encode(letter))
    odd = replace(found.candidates[0], text="ti", ids=letters)
    assert list(letters) != translator._target.encode("ti")
    pair = translator.trace_translation(replace(found, candidates=(odd,)))
    assert pair.target_tokens == tuple(translator._target.tokens(list(letters)))
    assert pair.trace.decoder.cross_attention[0].shape[2] == len(letters) + 1
    assert (pair.source, pair.target) == ("bana dora", "ti")


def test_what_is_longer_than_training_has_seen_is_cut_up_never_off(translator: Translator) -> None:
    assert 8 <= translator.longest_source <= 12
    words = " ".join(["bana", "dora", "kuti"] * 20)
    (result,) = translator.translate([words])
    assert len(result.parts) > 5
    assert "".join(part.source for part in result.parts) == words
    for part in result.parts:
        assert len(part.source_tokens) <= translator.longest_source


def test_alignment_links_every_target_token_to_a_source_token(translator: Translator) -> None:
    for text in ("bana dora kuti", " ".join(["bana", "dora"] * 12)):
        (result,) = translator.translate([text])
        links = translator.alignment(result)
        assert [target for _, target in links] == list(range(len(result.candidates[0].tokens)))
        assert all(0 <= source < len(result.source_tokens) for source, _ in links)
    assert translator.alignment(translator.translate([""])[0]) == []


def test_pairs_are_scored_as_they_are_translated(translator: Translator) -> None:
    (result,) = translator.translate(["bana dora"])
    best = result.candidates[0]
    if translator._target.encode(best.text) == list(best.ids):
        (score,) = translator.score([("bana dora", best.text)])
        assert score == pytest.approx(best.log_prob, abs=1e-4)
    good, bad = translator.score([("bana dora", "dora bana"), ("bana dora", "kuti kuti kuti kuti")])
    assert good > bad
    with pytest.raises(RequestError, match="longer than the"):
        translator.score([("bana " * 50, "bana")])


def test_many_threads_may_share_a_translator(translator: Translator) -> None:
    texts = [f"bana {word}" for word in ("dora", "kuti", "bun", "don", "dan", "kon")]
    expected = [result.text for result in translator.translate(texts)]
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = [result.text for result in translator.translate(texts)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), expected)


def test_the_weights_asked_for_are_loaded(run: Path) -> None:
    assert Translator.load(run).name == str(run / "averaged")
    assert Translator.load(run, checkpoint="150").name == str(run / "checkpoints/step-00000150")
    with pytest.raises(CheckpointError, match="no checkpoint of step 151"):
        Translator.load(run, checkpoint="151")
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        Translator.load(run / "nowhere")
    last, averaged = (load_model(RunDirectory(run), which).model for which in ("last", None))
    assert not torch.equal(last.output.weight, averaged.output.weight)
    assert not averaged.training


@pytest.fixture(scope="module")
def subwords(run: Path) -> Subwords:
    return RunDirectory(run).subwords()[0]


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_parts_fit_and_are_the_whole(subwords: Subwords, limit: int) -> None:
    text = "Bana dora kuti. " + "x" * 50 + " دورا 🙂 " + "bun " * 30
    parts = split_to_fit(text, subwords, limit, "en")
    assert "".join(parts) == text
    for part in parts:
        assert len(subwords.encode(part)) <= limit or len(part) == 1


def test_sentences_are_the_paragraph_again() -> None:
    paragraph = "Dr. Smith paid $3.50. He left!  Really?\tYes."
    parts = split_sentences(paragraph, "en")
    assert "".join(parts) == paragraph
    assert parts[0].startswith("Dr. Smith paid")
    assert len(parts) >= 3


def test_lines_are_sentences_of_their_own() -> None:
    assert split_sentences("a b\nc d\r\n\ne", "en") == ["a b\n", "c d\r\n", "\n", "e"]


@pytest.mark.parametrize("space", ["\x85", "\u2028", "\xa0", "\u3000", "\x1c"])
def test_odd_spaces_do_not_upset_the_splitter(space: str) -> None:
    text = f"Plan B{space}. And B{space}{space}. Then."
    assert "".join(split_sentences(text, "en")) == text


def test_sentences_added_one_after_another_are_translated_as_in_one_batch() -> None:
    engine, inputs = TorchEngine(lively_model().double(), batch_size=2), sources(20)
    settings = SearchSettings(nbest=2)
    search = engine.search(settings, 10)
    found: dict[int, list[Hypothesis]] = {}
    coming = iter(enumerate(inputs))
    while len(found) < 20:
        if newcomers := dict(itertools.islice(coming, 3)):
            search.add(newcomers)
        found.update(search.advance())
    expected = engine.translate(inputs, settings, 10)
    for number in range(20):
        for ours, theirs in zip(found[number], expected[number], strict=True):
            assert ours.ids == theirs.ids
            assert ours.log_prob == pytest.approx(theirs.log_prob)
            assert ours.score == pytest.approx(theirs.score)


def test_idle_rows_do_not_grow() -> None:
    """One of eight rows stays idle for as long as the other seven are in use."""
    torch.manual_seed(1)
    config = model_config(positions="learned", max_positions=32)
    engine = TorchEngine(Transformer(config, Vocab.shared(50)).eval())
    # Every output reaches its limit, one after the other.
    search, numbers = engine.search(SearchSettings(min_length=99), 6), itertools.count()
    search.add({next(numbers): [5] * (1 + 2 * n) for n in range(8)})
    found = []
    for _ in range(150):
        found += search.advance()
        while len(search) < 7:
            search.add({next(numbers): [5] * 10})
    assert len(found) > 40
    assert search._beams._running is not None
    beams, state = search._beams._running
    assert int(beams.idle.sum()) == 1
    assert max(beams.tokens.shape[2], state.length) <= 20


def test_a_sentence_that_is_given_up_is_not_found() -> None:
    engine, inputs = TorchEngine(lively_model()), sources(5)
    search = engine.search(SearchSettings(min_length=3), 10)
    search.add(dict(enumerate(inputs)))
    found = []
    search.drop({1, 3})
    while search:
        found += search.advance()
    assert sorted(number for number, _ in found) == [0, 2, 4]


def test_the_parts_of_translate_make_the_whole(translator: Translator) -> None:
    texts = ["ban dora. Kuti bun!", "", " \n", "kan\nbara"]
    cut = translator.cut(texts, split=True)
    search, sources = translator.search(translator.settings(nbest=2)), cut.sources
    search.add(dict(enumerate(sources)))
    found = []
    while search:
        found += search.advance()
    hypotheses = [dict(found)[number] for number in range(len(sources))]
    assert translator.finish(cut, hypotheses) == translator.translate(texts, nbest=2, split=True)


def test_the_tokens_probabilities_multiply_to_the_whole(translator: Translator) -> None:
    translations = translator.translate(["ban dora kuti", "", "Kan dora. Bara kuti."], split=True)
    assert translations[2].parts
    first, nothing, in_parts = translator.token_log_probs(translations)
    assert (nothing, in_parts) == ([], [])
    best = translations[0].candidates[0]
    assert len(first) == len(best.tokens) + 1
    assert sum(first) == pytest.approx(best.log_prob, abs=1e-4)
