import pytest

from headwise import paper
from headwise.config import Vocab
from headwise.paper import EXPERIMENTS, compare_with_paper, describe_departures, describe_size
from headwise.recipes import load_recipe, recipe_names

TABLE3_COUNTS = {
    "table3-base": (65.1, 65),
    "table3-b-dk16": (58.0, 58),
    "table3-b-dk32": (60.4, 60),
    "table3-c-n2": (35.7, 36),
    "table3-c-n4": (50.4, 50),
    "table3-c-n8": (79.8, 80),
    "table3-c-d256": (27.8, 28),
    "table3-c-d1024": (167.9, 168),
    "table3-c-ff1024": (52.5, 53),
    "table3-c-ff4096": (90.3, 90),
}


@pytest.mark.parametrize("recipe", TABLE3_COUNTS)
def test_table_3_parameter_counts_come_out_right(recipe: str) -> None:
    ours, printed = TABLE3_COUNTS[recipe]
    config = load_recipe(recipe)
    count = config.model.count_parameters(Vocab.shared(config.data.vocab_size)) / 1e6
    assert round(count, 1) == ours
    assert round(count) == printed
    assert describe_size(config).startswith(f"{ours} million parameters; Table 3 ")
    assert describe_size(config).endswith(f"the paper prints {printed}")


OURS = ["demo", "demo-numbers", "demo-reverse", "gpt", "lm-tiny", "multi30k-tiny", "parsing-small"]
OURS += ["bert-tiny", "text-tiny", "vit-tiny", "speech-tiny", "read-tiny", "listen-tiny"]


@pytest.mark.parametrize("recipe", OURS)
def test_recipes_of_our_own_name_their_departures(recipe: str) -> None:
    _, departures = compare_with_paper(load_recipe(recipe))
    assert "model.d_model" in {departure.key for departure in departures}


def test_without_attention_biases_a_count_of_table_3_comes_out_wrong() -> None:
    config = load_recipe("table3-c-ff1024", ["model.attention_bias=false"])
    count = config.model.count_parameters(Vocab.shared(config.data.vocab_size)) / 1e6
    assert round(count) != 53


@pytest.mark.parametrize("recipe", [name for name in recipe_names() if name not in OURS])
def test_the_papers_own_recipes_depart_from_nothing(recipe: str) -> None:
    experiment, departures = compare_with_paper(load_recipe(recipe))
    assert (experiment.recipe, departures) == (recipe, [])


def test_every_row_of_table_3_ships() -> None:
    rows = "a-h1 a-h4 a-h16 a-h32 b-dk16 b-dk32 c-n2 c-n4 c-n8 c-d256 c-d1024 c-ff1024 c-ff4096"
    rows += " d-drop0 d-drop2 d-ls0 d-ls2 e-learned base big"
    named = {experiment.recipe for experiment in EXPERIMENTS}
    parsers = {"parsing-wsj", "parsing-semi"}
    assert named == {"base", "big", *parsers, *(f"table3-{row}" for row in rows.split())}
    assert named <= set(recipe_names())


def test_what_the_rows_change_is_what_the_table_says() -> None:
    def model(row: str) -> tuple[int, ...]:
        m = load_recipe(f"table3-{row}").model
        return m.num_layers, m.d_model, m.d_ff, m.num_heads, m.d_k, m.d_v

    assert model("base") == (6, 512, 2048, 8, 64, 64)
    assert model("a-h1") == (6, 512, 2048, 1, 512, 512)
    assert model("a-h4") == (6, 512, 2048, 4, 128, 128)
    assert model("a-h16") == (6, 512, 2048, 16, 32, 32)
    assert model("a-h32") == (6, 512, 2048, 32, 16, 16)
    assert model("b-dk16") == (6, 512, 2048, 8, 16, 64)
    assert model("c-d256") == (6, 256, 2048, 8, 32, 32)
    assert model("c-d1024") == (6, 1024, 2048, 8, 128, 128)
    assert model("big") == (6, 1024, 4096, 16, 64, 64)
    assert load_recipe("table3-big").model.dropout == 0.3
    assert load_recipe("table3-big").train.max_steps == 300_000
    assert load_recipe("table3-d-ls2").train.label_smoothing == 0.2
    assert load_recipe("table3-e-learned").model.positions == "learned"


def test_a_departure_is_named_with_its_section() -> None:
    text = describe_departures(load_recipe("base", ["model.norm_order=pre"]))
    assert text == (
        "1 departure from the paper, compared with the base model:\n"
        '  model.norm_order = "pre", where §3.1 has "post"'
    )


def test_a_departure_says_what_the_paper_has_instead() -> None:
    cosine = ["train.schedule=cosine", "train.peak_rate=1e-3", "train.max_minutes=10"]
    text = describe_departures(load_recipe("base", cosine))
    assert text.startswith("2 departures")
    assert 'train.schedule = "cosine", where §5.3 has d_model^-0.5 · min(step^-0.5' in text
    assert "train.max_minutes = 10.0, where §5.2 has no time limit" in text


def test_the_options_of_later_models_are_departures() -> None:
    changes = ["activation=gelu", "norm_epsilon=1e-5", "scale_embeddings=false"]
    text = describe_departures(load_recipe("base", [f"model.{change}" for change in changes]))
    assert text.splitlines() == [
        "3 departures from the paper, compared with the base model:",
        "  model.norm_epsilon = 1e-05, where §3.1 has no value, and the authors' code 1e-6",
        '  model.activation = "gelu", where §3.3 has "relu"',
        "  model.scale_embeddings = false, where §3.4 has embeddings multiplied by sqrt(d_model)",
    ]


def test_what_bert_adds_to_embeddings_is_a_departure() -> None:
    config = load_recipe("text-tiny", ["model.embedding_norm=true", "model.token_types=2"])
    added = {"model.embedding_norm", "model.token_types"}
    found = [departure for departure in compare_with_paper(config)[1] if departure.key in added]
    assert [str(departure) for departure in found] == [
        "model.embedding_norm = true, where §3.5 has embeddings and positions added, without a "
        "norm",
        "model.token_types = 2, where §3.5 has embeddings and positions alone",
    ]
    assert all(departure.reason for departure in found)
    assert added.isdisjoint(
        departure.key for departure in compare_with_paper(load_recipe("text-tiny"))[1]
    )


@pytest.mark.parametrize(
    ("recipe", "changes", "keys"),
    [
        ("text-tiny", [], {"model.pooling"}),
        ("bert-tiny", [], set()),
        ("vit-tiny", ["data.flip=true"], {"model.pooling", "data.shift", "data.flip"}),
        (
            "speech-tiny",
            [],
            {"model.pooling", "data.stack", "data.time_masks", "data.frequency_masks"},
        ),
    ],
)
def test_what_classifiers_add_is_a_departure(
    recipe: str, changes: list[str], keys: set[str]
) -> None:
    _, departures = compare_with_paper(load_recipe(recipe, changes))
    found = {each.key: each for each in departures if each.key in paper._ABSENT}
    assert set(found) == keys
    assert all(each.reason and each.says for each in found.values())


def test_a_decoder_departs_only_if_its_layers_are_not_as_many_as_the_encoders() -> None:
    assert describe_departures(load_recipe("base", ["model.num_layers=4"])).splitlines()[1:] == [
        "  model.num_layers = 4, where §3.1 has 6"
    ]
    text = describe_departures(load_recipe("base", ["model.num_decoder_layers=2"]))
    assert text.splitlines()[1:] == [
        "  model.num_decoder_layers = 2, where §3.1 has as many layers in the decoder as in the "
        "encoder"
    ]


def test_a_parser_is_compared_with_the_papers_parsers() -> None:
    config = load_recipe("parsing-wsj", ["decode.beam=4", "decode.constrained=true"])
    assert describe_departures(config).splitlines() == [
        "2 departures from the paper, compared with the parser of §6.3, WSJ only:",
        "  decode.beam = 4, where §6.3 has 21",
        "  decode.constrained = true, where §6.3 has a search that does not know what a tree is",
    ]
    experiment, departures = compare_with_paper(load_recipe("parsing-small"))
    found = {departure.key: departure for departure in departures}
    assert experiment.recipe == "parsing-wsj"
    assert "model.aligned_input" in found
    assert found["decode.beam"].reason == "a narrower beam is quicker"
    assert "task" not in found


@pytest.mark.parametrize(("recipe", "f1"), [("parsing-wsj", 91.3), ("parsing-semi", 92.7)])
def test_the_papers_parsers_have_its_f1(recipe: str, f1: float) -> None:
    lines = describe_departures(load_recipe(recipe)).splitlines()
    assert lines[0].startswith("No departure from the paper: this is the parser of §6.3")
    assert lines[1] == f"The paper reports F1 {f1} on section 23 of the WSJ."


def test_what_the_paper_does_not_print_of_its_parser_is_no_departure() -> None:
    changes = ["model.dropout=0.3", "model.tying=two-way", "train.warmup_steps=8000"]
    paper_schedule = ["train.schedule=paper", "train.peak_rate=0"]
    config = load_recipe("parsing-wsj", [*changes, *paper_schedule])
    assert compare_with_paper(config)[1] == []


def test_departures_from_a_row_are_counted_from_that_row() -> None:
    config = load_recipe("table3-b-dk16", ["model.tying=untied", "train.seed=9"])
    experiment, departures = compare_with_paper(config)
    assert experiment.recipe == "table3-b-dk16"
    assert [(d.key, d.value, d.paper, d.section) for d in departures] == [
        ("model.tying", "untied", "three-way", "§3.4")
    ]


def test_many_small_batches_are_the_papers_large_one() -> None:
    same = load_recipe("base", ["train.batch_tokens=2500", "train.accumulate=10"])
    assert compare_with_paper(same)[1] == []
    smaller = load_recipe("base", ["train.batch_tokens=2500"])
    assert [d.value for d in compare_with_paper(smaller)[1]] == [2500]


@pytest.mark.parametrize(
    ("recipe", "overrides", "title"),
    [
        ("base", ["data.vocab_size=32000"], "the base model, English-French"),
        (
            "big",
            ["data.vocab_size=32000", "model.dropout=0.1"],
            "the big model, English-French",
        ),
    ],
)
def test_english_french_is_the_papers_too(recipe: str, overrides: list[str], title: str) -> None:
    experiment, departures = compare_with_paper(load_recipe(recipe, overrides))
    assert (experiment.title, departures) == (title, [])


@pytest.mark.parametrize(
    ("recipe", "overrides", "nearest", "keys"),
    [
        ("base", ["train.average_last=1"], "base", ["train.average_last"]),
        ("base", ["data.vocab_size=8000"], "base", ["data.vocab_size"]),
        ("big", ["model.dropout=0.1"], "big", ["model.dropout"]),
        ("big", ["model.num_heads=8"], "big", ["model.num_heads", "model.d_k", "model.d_v"]),
        ("table3-big", ["data.vocab_size=36000"], "table3-big", ["data.vocab_size"]),
        ("table3-c-d256", ["data.vocab_size=37000"], "table3-c-d256", ["data.vocab_size"]),
    ],
)
def test_a_config_is_compared_with_the_nearest_experiment(
    recipe: str, overrides: list[str], nearest: str, keys: list[str]
) -> None:
    experiment, departures = compare_with_paper(load_recipe(recipe, overrides))
    assert (experiment.recipe, [d.key for d in departures]) == (nearest, keys)


def test_what_is_near_no_experiment_is_compared_with_the_base_model() -> None:
    experiment, departures = compare_with_paper(load_recipe("multi30k-tiny"))
    assert experiment.title == "the base model"
    assert len(departures) > 5


def test_a_count_is_set_beside_the_papers_only_where_it_is_the_papers_model() -> None:
    assert describe_size(load_recipe("base", ["train.average_last=1"])) == "63.1 million parameters"
    assert "paper prints 213" in describe_size(load_recipe("table3-big"))
    assert "paper prints no count" in describe_size(load_recipe("table3-a-h4"))


def test_a_departure_has_a_reason_by_which_way_it_goes() -> None:
    _, departures = compare_with_paper(
        load_recipe("base", ["model.dropout=0.3", "data.vocab_size=90000", "model.norm_order=pre"])
    )
    reasons = {departure.key: departure.reason for departure in departures}
    assert "learned by heart" in reasons["model.dropout"]
    assert "warm-up" in reasons["model.norm_order"]
    assert reasons["data.vocab_size"] == "", "only for a smaller one is there a usual reason"


def test_every_reason_is_for_a_setting_that_the_paper_fixes() -> None:
    assert {key for key, _ in paper._REASONS} <= set(paper._SECTIONS)
