"""Whatever a valid config says, its TOML says it too."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from headwise.config import (
    STRONGEST_PENALTY,
    WIDEST_BEAM,
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
)

share = st.floats(0, 1, exclude_max=True, allow_nan=False)
positive = st.floats(0, allow_nan=False, allow_infinity=False)
count = st.integers(1, 10**9)

configs = st.builds(
    Config,
    data=st.builds(DataConfig, vocab_size=st.integers(5, 10**7)),
    model=st.builds(
        ModelConfig,
        d_model=st.integers(1, 5000).map(lambda n: 2 * n),
        num_heads=st.integers(1, 64),
        d_k=st.integers(1, 512),
        d_v=st.integers(1, 512),
        dropout=share,
        norm_order=st.sampled_from(["pre", "post"]),
        positions=st.sampled_from(["sinusoidal", "learned"]),
        tying=st.sampled_from(["three-way", "two-way", "untied"]),
        attention_bias=st.booleans(),
        activation=st.sampled_from(["relu", "gelu", "gelu_tanh"]),
        norm_epsilon=st.floats(0, 1, exclude_min=True, allow_nan=False),
        scale_embeddings=st.booleans(),
    ),
    train=st.builds(TrainConfig, max_steps=count, max_minutes=positive, label_smoothing=share),
    decode=st.builds(
        DecodeConfig, beam=st.integers(1, WIDEST_BEAM), alpha=st.floats(0, STRONGEST_PENALTY)
    ),
)


@given(configs)
def test_toml_carries_every_value_exactly(config: Config) -> None:
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
