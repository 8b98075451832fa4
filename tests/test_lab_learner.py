"""The learner: what it may not see, what it must equal, and what can be looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.learners.base import Learner, LearnerConfig
from innergrad.lab.learners.gpt import GPT, GPTConfig

SMALL = GPTConfig(n_layers=3, d_model=32, n_heads=4, d_mlp=48, init_std=0.3)
D, N, B = 5, 9, 6
VARIANTS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "relu": {"attention": "relu"},
    "relu, divided by the root": {"attention": "relu", "normalise": "sqrt"},
    "linear": {"attention": "linear"},
    "exp": {"attention": "exp", "normalise": "none"},
    "rotary": {"positions": "rotary"},
    "no positions": {"positions": "none"},
    "tied": {"tied": True},
    "normalised queries and keys": {"qk_norm": True, "positions": "rotary"},
    "attention only": {"d_mlp": 0},
    "no LayerNorm": {"layer_norm": False, "init_std": 0.1},
    "columns": {"tokens": "columns"},
    "columns, relu": {"tokens": "columns", "attention": "relu"},
    "columns, bare": {"tokens": "columns", "attention": "linear", "d_mlp": 0, "layer_norm": False, "positions": "none"},
}
everything = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def built(stack: int = 1, **changes: Any) -> Learner:
    return replace(SMALL, **changes).build(D, N, stack).init(range(stack))


def prompts(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, N, D, generator=generator), torch.randn(B, N, generator=generator)


@everything
def test_no_prediction_depends_on_what_comes_later(changes: dict[str, Any]) -> None:
    """Prediction k reads x up to k and y before k: later pairs, and the label itself, change no bit of it."""
    learner, (x, y), (other_x, other_y) = built(**changes), prompts(), prompts(1)
    before = learner.predict(x, y)
    for k in range(N):
        changed_x = torch.cat((x[:, : k + 1], other_x[:, k + 1 :]), 1)
        changed_y = torch.cat((y[:, :k], other_y[:, k:]), 1)
        after = learner.predict(changed_x, changed_y)
        assert torch.equal(before[:, : k + 1], after[:, : k + 1])
    assert not torch.allclose(before[:, 1:], learner.predict(x, other_y)[:, 1:])  # but earlier labels do


@everything
def test_a_stack_is_its_models(changes: dict[str, Any]) -> None:
    """Model s of a stack is the model of its seed alone, and predicts the same, to float32's rounding."""
    stack, (x, y) = built(3, **changes), prompts()
    together = stack(x.expand(3, -1, -1, -1), y.expand(3, -1, -1))
    for number in range(3):
        alone = replace(SMALL, **changes).build(D, N).init([number])
        for (name, parameter), other in zip(alone.named_parameters(), stack.model(number).parameters(), strict=True):
            assert torch.equal(parameter, other), name
        torch.testing.assert_close(together[number], alone(x[None], y[None])[0], rtol=1e-5, atol=1e-5)


@everything
def test_what_is_kept_is_what_was_computed(changes: dict[str, Any]) -> None:
    """run_with_cache predicts as predict does; the stream adds up; rows of softmax patterns sum to one."""
    learner, (x, y) = built(**changes), prompts()
    config = replace(SMALL, **changes)
    predictions, cache = learner.run_with_cache(x, y)
    torch.testing.assert_close(predictions, learner(x[None], y[None])[0], rtol=1e-5, atol=1e-5)
    for number in range(config.n_layers):
        at = f"blocks.{number}."
        torch.testing.assert_close(cache[at + "resid_mid"], cache[at + "resid_pre"] + cache[at + "attn_out"])
        if config.d_mlp:
            torch.testing.assert_close(cache[at + "resid_post"], cache[at + "resid_mid"] + cache[at + "mlp_out"])
        if config.attention == "softmax":
            sums = cache[at + "attn.pattern"].sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums))
    last = cache[f"blocks.{config.n_layers - 1}.resid_post"]
    again, _ = learner.run_with_cache(x, y, [], {f"blocks.{config.n_layers - 1}.resid_post": lambda _: last})
    torch.testing.assert_close(again, predictions)


def test_names_choose_and_edits_change() -> None:
    learner, (x, y) = built(), prompts()
    predictions, cache = learner.run_with_cache(x, y, ["blocks.*.attn.pattern", "ln_final"])
    assert sorted(cache) == ["blocks.0.attn.pattern", "blocks.1.attn.pattern", "blocks.2.attn.pattern", "ln_final"]
    assert cache["blocks.0.attn.pattern"].shape == (B, 4, 2 * N - 1, 2 * N - 1)
    ablated, _ = learner.run_with_cache(x, y, [], {"blocks.1.attn_out": torch.zeros_like})
    assert not torch.allclose(ablated, predictions)
    everywhere, _ = learner.run_with_cache(x, y, [], {"blocks.*.attn_out": torch.zeros_like})
    each = {f"blocks.{number}.attn_out": torch.zeros_like for number in range(3)}
    assert torch.equal(everywhere, learner.run_with_cache(x, y, [], each)[0])
    assert not torch.allclose(everywhere, ablated)
    with pytest.raises(InputError, match=r"an edit of ln_final must return .* got shape \(1, 9, 32\)"):
        learner.run_with_cache(x, y, [], {"ln_final": lambda value: value[:1]})
    with pytest.raises(InputError, match="got NoneType"):
        learner.run_with_cache(x, y, "ln_final", {"ln_final": lambda value: None})  # type: ignore[dict-item, return-value]
    with pytest.raises(InputError, match=r"no activation has this name.*blocks.9.attn.z"):
        learner.run_with_cache(x, y, ["blocks.9.attn.z"])


@pytest.mark.parametrize("change", [{"tied": True}, {"d_mlp": 0}, {"positions": "none"}, {"layer_norm": False}])
def test_other_blocks_are_not_gpt2s(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="these blocks are not GPT-2's"):
        replace(SMALL, **change).build(3, 5).to_gpt2()  # type: ignore[attr-defined]


def test_models_and_prompts_that_are_not_there() -> None:
    stack = SMALL.build(3, 5, 2)
    for number in (2, -1):
        with pytest.raises(InputError, match="no such model in the stack"):
            stack.model(number)
    with pytest.raises(InputError, match=r"x \(B, n, d\) and y \(B, n\)"):
        stack.model(0).predict(torch.zeros(5, 3), torch.zeros(5))


@pytest.mark.parametrize("d_mlp", [32, 128])
def test_hugging_faces_gpt2(d_mlp: int) -> None:
    """With GPT-2's weights, the blocks are GPT-2's: the final hidden states agree in float64 to 1e-12."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": d_mlp, "n_positions": 40}
    theirs = GPT2Model(GPT2Config(vocab_size=1, bos_token_id=0, eos_token_id=0, **sizes)).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    ours = replace(SMALL, d_mlp=d_mlp).build(D, N).init([0]).double()
    assert isinstance(ours, GPT)
    ours.load_gpt2(theirs.state_dict())
    x, y = (value.double() for value in prompts())
    tokens = ours.tokens(x[None], y[None], dict(ours.named_parameters()))[0]
    expected = theirs(inputs_embeds=tokens).last_hidden_state[:, ::2]
    found = ours.run_with_cache(x, y, ["ln_final"])[1]["ln_final"]
    assert (found - expected).abs().max() < 1e-12
    state = theirs.state_dict()
    assert all(torch.equal(value, state[name][: len(value)]) for name, value in ours.to_gpt2().items())


def test_tied_blocks_are_one_block_repeated() -> None:
    tied, free = built(tied=True), built()
    shared = dict(tied.named_parameters())
    with torch.no_grad():
        for name, parameter in free.named_parameters():
            parameter.copy_(shared[name].expand_as(parameter))
    torch.testing.assert_close(free.predict(*prompts()), tied.predict(*prompts()))


def test_relu_attention_counts_the_tokens_seen() -> None:
    """001 divides by the prompt's length: a longer prompt would change early predictions. The count does not."""
    learner, (x, y) = built(attention="relu", positions="none"), prompts()
    _, cache = learner.run_with_cache(x, y, ["blocks.0.attn.*"])
    q, k, _ = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in cache["blocks.0.attn.qkv"].chunk(3, -1))
    pattern = cache["blocks.0.attn.pattern"]
    for i in (0, 3, 2 * N - 2):
        row = torch.relu(torch.stack([(q[:, :, i] * k[:, :, j]).sum(-1) for j in range(i + 1)], -1)) / 8**0.5
        torch.testing.assert_close(pattern[:, :, i, : i + 1], row / (i + 1))
        assert not pattern[:, :, i, i + 1 :].any()


def test_labels_have_a_scale() -> None:
    """The network works on y / scale: labels in another unit give predictions in that unit."""
    learner, (x, y) = built(), prompts()
    before = learner.predict(x, y)
    learner.scale.fill_(128.0)  # a power of two, so that nothing is rounded
    assert torch.equal(learner.predict(x, 128.0 * y), 128.0 * before)


def test_longer_prompts_than_positions() -> None:
    learner = SMALL.build(D, N).init([0])
    x, y = torch.randn(1, N + 1, D), torch.randn(1, N + 1)
    with pytest.raises(
        InputError, match="learned positions end before the prompt does; got 10 points; allowed: up to 9"
    ):
        learner.predict(x, y)
    for changes in ({"positions": "rotary"}, {"positions": "none"}, {"max_points": N + 1}):
        assert replace(SMALL, **changes).build(D, N).init([0]).predict(x, y).shape == (1, N + 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 5}, "d_model must be a multiple of learner.n_heads; got 32 and 5"),
        ({"n_layers": 0}, "learner.n_layers must be a positive integer"),
        ({"d_mlp": -1}, "learner.d_mlp must be an integer, at least 0"),
        ({"init_std": 0.0}, "learner.init_std must be a positive number"),
        ({"positions": "rotary", "d_model": 12, "n_heads": 4}, "rotary positions need heads of an even size; got 3"),
    ],
)
def test_bad_shapes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **changes)


def test_one_model_at_a_time() -> None:
    with pytest.raises(InputError, match="predict is for one model; got a stack of 2"):
        built(2).predict(*prompts())


def test_prompts_of_another_shape() -> None:
    x, y = prompts()
    model = built(1)
    wrong = ((x[..., 1:], y), (x, y[:, 1:]), (x[0], y[0]), (x.tolist(), y))
    for call in (model.predict, model.run_with_cache):
        for pair in wrong:
            with pytest.raises(InputError, match=r"prompts are .*x \(B, n, d\) and y \(B, n\)"):
                call(*pair)  # type: ignore[arg-type]
        for empty in ((x[:0], y[:0]), (x[:, :0], y[:, :0])):
            with pytest.raises(InputError, match="there are no prompts"):
                call(*empty)
    with pytest.raises(InputError, match=r"the edit of blocks\.0\.attn_out is no function; got float"):
        model.run_with_cache(x, y, edits={"blocks.0.attn_out": 1.0})  # type: ignore[dict-item]
    assert "d=" in str(model)
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters each" in str(model)


def test_what_a_learner_lacks_is_named() -> None:
    bare = Learner(d=2)
    bare.register_parameter("w", torch.nn.Parameter(torch.zeros(1, 2)))
    for call, words in (
        (lambda: LearnerConfig().build(2, 5), "LearnerConfig has no build"),
        (lambda: bare.init([0]), "Learner has no draw"),
        (lambda: bare.predict(torch.zeros(3, 4, 2), torch.zeros(3, 4)), "Learner has no forward"),
        (lambda: bare.model(0), "Learner has no alone"),
    ):
        with pytest.raises(InputError, match=words):
            call()
