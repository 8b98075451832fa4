"""Models from elsewhere: wrapped, or loaded from a checkpoint of Garg et al., they predict what they do at home."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab.baselines import LeastSquares, Predictor
from innergrad.lab.learners.base import Learner
from innergrad.lab.probes import hidden_states

D, N, WIDTH, HEADS = 3, 6, 32, 4


class Theirs(nn.Module):
    """The model of Garg et al., written as they write it: Hugging Face's GPT-2 between two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        sizes: dict[str, Any] = {"n_positions": 2 * N, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS}
        config = transformers.GPT2Config(vocab_size=1, bos_token_id=0, eos_token_id=0, **sizes)
        self._read_in = nn.Linear(D, WIDTH)
        self._backbone = transformers.GPT2Model(config)
        self._read_out = nn.Linear(WIDTH, 1)

    def forward(self, xs: Tensor, ys: Tensor) -> Tensor:
        wide = torch.cat((ys[:, :, None], torch.zeros(*ys.shape, D - 1)), 2)
        zs = torch.stack((xs, wide), 2).view(len(xs), 2 * xs.shape[1], D)
        states = self._backbone(inputs_embeds=self._read_in(zs)).last_hidden_state
        return self._read_out(states)[:, ::2, 0]


@pytest.fixture(scope="module")
def theirs() -> Theirs:
    torch.manual_seed(0)
    made = Theirs().eval()
    with torch.no_grad():  # weights of a trained size: those of GPT-2's start hardly attend
        for parameter in made.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return made


def prompts(seed: int = 1) -> tuple[Tensor, Tensor]:
    x, y, _ = lab.Linear(d=D).sample(lab.CounterRNG.of(seed, "wrap"), torch.arange(5), N)
    return x, y


def wrapped(theirs: Theirs, blocks: str = "") -> Learner:
    return lab.wrap(
        theirs._backbone,
        d=D,
        read_in=lambda x, y: theirs._read_in(lab.interleave(x, y)),
        read_out=lambda states: theirs._read_out(states)[:, ::2, 0],
        blocks=blocks,
    )


@pytest.fixture(params=["wrapped", "loaded"])
def learner(request: pytest.FixtureRequest, theirs: Theirs, tmp_path: Path) -> Learner:
    """Their model as a learner, in both ways."""
    if request.param == "wrapped":
        return wrapped(theirs, blocks="h")
    save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    return lab.load_garg(tmp_path / "model.safetensors", n_heads=HEADS)


def test_a_checkpoint_of_garg_is_hugging_faces_model(theirs: Theirs, tmp_path: Path) -> None:
    x, y = prompts()
    with torch.no_grad():
        expected = theirs(x, y)
    save_file(dict(theirs.state_dict()), tmp_path / "model.safetensors")
    for source in (tmp_path / "model.safetensors", theirs.state_dict()):
        learner = lab.load_garg(source, n_heads=HEADS)
        assert (learner.predict(x, y) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert learner.config.d_mlp == 4 * WIDTH
    assert (lab.load_garg(theirs.state_dict()).predict(x, y) - expected).abs().max() > 1e-3  # one head is another model
    shown = learner.run_with_cache(x, y, ["blocks.1.attn.pattern"])[1]["blocks.1.attn.pattern"]
    assert shown.shape == (5, HEADS, 2 * N - 1, 2 * N - 1)


def test_a_wrapped_model_is_the_model(theirs: Theirs) -> None:
    """Predictions, activations by the names of its parts, edits, evaluation."""
    learner = wrapped(theirs)
    x, y = prompts()
    with torch.no_grad():
        expected = theirs(x, y)
    assert (learner.predict(x, y) - expected).abs().max() < 1e-6 * expected.abs().max()
    found, cache = learner.run_with_cache(x, y, ["h.*.mlp", "read_in"])
    assert set(cache) == {"h.0.mlp", "h.1.mlp", "read_in"}
    assert cache["h.1.mlp"].shape == (5, 2 * N, WIDTH)
    edited, _ = learner.run_with_cache(x, y, [], edits={"h.0.attn": torch.zeros_like, "h.1.attn": torch.zeros_like})
    assert torch.allclose(found, expected, rtol=1e-5)
    blind, other = edited[:, -1], learner.run_with_cache(x, y.flip(1), [], edits={"h.*.attn": torch.zeros_like})[0]
    assert torch.allclose(blind, other[:, -1])  # without attention no label is seen
    ours = lab.load_garg(theirs.state_dict(), n_heads=HEADS)
    names = ["blocks.0.resid_pre", "blocks.*.resid_post"]
    named = wrapped(theirs, blocks="h")
    hidden, expected_hidden = (one.run_with_cache(x, y, names)[1] for one in (named, ours))
    assert set(hidden) == set(expected_hidden) == {"blocks.0.resid_pre", "blocks.0.resid_post", "blocks.1.resid_post"}
    for name, value in expected_hidden.items():
        assert torch.allclose(hidden[name][:, : 2 * N - 1], value, atol=1e-4 * float(value.abs().max())), name
    with pytest.raises(InputError, match="blocks is the name of a list of modules; got 'layers'; allowed: h"):
        wrapped(theirs, blocks="layers")
    errors = [
        lab.evaluate(one.predict, lab.Linear(d=D), n_prompts=32, n_points=N).curves["model"]["squared error"].value
        for one in (learner, ours)
    ]
    assert torch.allclose(*errors, rtol=1e-4)


@dataclass(frozen=True)
class Raw(Predictor):
    """Their model itself, or zero times it, with nothing of the lab between."""

    module: Any = None
    times: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.times:g} x theirs"

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = self.times * self.module(x, y)
        return found


def weights_by_numpy(module: Theirs, x: Tensor, y: Tensor, tests: Tensor, k: int) -> np.ndarray[Any, Any]:
    """Of one prompt: the fit to what the module says at each test input after k pairs. The label there may be any."""
    with torch.no_grad():
        said = [
            module(torch.cat((x[:k], one[None]))[None], torch.cat((y[:k], torch.tensor([7.0])))[None])[0, k]
            for one in tests
        ]
    return np.linalg.lstsq(tests.double().numpy(), torch.stack(said).double().numpy(), rcond=None)[0]


def test_spd_and_ilw_are_those_of_the_module(learner: Learner, theirs: Theirs) -> None:
    """Equations (13) to (15) of Akyürek et al. by numpy, from the module's own forward pass."""
    x, y = prompts()
    ks = [0, 2, N - 1]
    with torch.no_grad():
        said = theirs(x, y).double()
    found = lab.squared_prediction_difference(learner.predict(x, y), torch.zeros_like(y), d=D)
    assert torch.allclose(found.value.double(), said.square().mean(0) / D, rtol=1e-4)
    tests = torch.randn(len(x), 2 * D, D, generator=torch.Generator().manual_seed(0))
    w = lab.implied_weights(learner.predict, x, y, tests, ks)
    exact = np.array([[weights_by_numpy(theirs, *one, k) for k in ks] for one in zip(x, y, tests, strict=True)])
    assert np.abs(w.numpy() - exact).max() < 1e-4 * np.abs(exact).max()
    assert np.abs(exact[:, 1] - exact[:, 2]).max() > 0.1 * np.abs(exact).max()  # or a wrong length would pass
    apart = lab.implied_weight_difference(w, torch.zeros_like(w), ks)
    assert np.allclose(apart.value.numpy(), np.square(exact).sum(2).mean(0) / D, rtol=1e-4)


def test_a_model_is_nearest_to_itself(learner: Learner, theirs: Theirs) -> None:
    itself, nothing = Raw(theirs), Raw(theirs, 0.0)
    found = lab.compare(learner.predict, lab.Linear(d=D), [LeastSquares(), nothing, itself], n_prompts=20, n_points=N)
    for measure in ("SPD", "ILW"):
        means = found.means(measure)
        assert found.nearest(measure) == itself.name
        assert means[itself.name] < 1e-8 * means[nothing.name]  # squares, of differences of 1e-5 and less


def test_a_learner_stands_for_its_predictions(learner: Learner) -> None:
    """Wherever a function predict(x, y) is taken. A stack of several, and what cannot be called, is an error."""
    task, sizes = lab.Linear(d=D), {"n_prompts": 16, "n_points": N}
    x, y = prompts()
    uses: list[Any] = [
        lambda one: lab.compare(one, task, **sizes).curves["ILW"]["least squares"].value,
        lambda one: lab.evaluate(one, task, **sizes).curves["model"]["squared error"].value,
        lambda one: lab.implied_weights(one, x, y, x, [2]),
    ]
    several = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8).build(D, N, 2).init([0, 1])
    for use in uses:
        torch.testing.assert_close(use(learner), use(learner.predict))
        with pytest.raises(InputError, match="one model; got a stack of 2"):
            use(several)
        with pytest.raises(InputError, match="a function or a learner; got str"):
            use("least squares")


def test_probes_find_what_is_in_the_tokens(learner: Learner, theirs: Theirs) -> None:
    """Layer 0 has each point and each label at a token of its own, but the last label, which no learner is shown."""
    x, y = prompts()
    with torch.no_grad():
        tokens = theirs._read_in(lab.interleave(x, y))[:, : 2 * N - 1]
        exact = theirs._backbone(inputs_embeds=tokens, output_hidden_states=True).hidden_states[:-1]  # then a norm
    layers = hidden_states(learner)(x, y)
    assert layers.shape[0] == 3
    for found, expected in zip(layers, exact, strict=False):
        assert torch.allclose(found[:, : 2 * N - 1], expected, atol=1e-5 * float(expected.abs().max()))
    targets: dict[str, lab.probes.Target] = {
        "point": lambda x, y: x[:, -1],
        "label": lambda x, y: y[:, -1:].expand(-1, D),
    }
    probes = lab.probe(
        learner,
        lab.Linear(d=D),
        prefixes=[3, N],
        n_points=N,
        targets=targets,
        readouts=["linear"],
        config=lab.ProbeConfig(steps=150, batch=32, lr=3e-2, n_prompts=256),
    )
    error = {name: probes.errors["linear", name] for name in targets}
    look = {name: int(probes.attention["linear", name][0, 0].argmax()) for name in targets}
    assert error["point"].shape == (3, 2)
    assert probes.attention["linear", "point"].shape == (3, 2, layers.shape[2])
    assert error["point"][0].max() < 0.05
    assert error["label"][0, 0] < 0.05
    assert error["label"][0, 1] > 0.9
    assert look == {"point": 4, "label": 5}  # x_3 and y_3


def test_a_model_for_one_query_and_in_another_precision() -> None:
    """The mean of the labels before the last point, by attention that weighs all alike, in float64."""
    module = nn.Linear(D + 1, D + 1).double()
    with torch.no_grad():
        module.weight.copy_(torch.eye(D + 1))
        module.bias.zero_()
    learner = lab.wrap(
        module,
        d=D,
        read_in=lambda x, y: torch.cat((x, y[..., None]), -1),
        read_out=lambda states: states[:, :-1, -1].sum(1, keepdim=True) / max(states.shape[1] - 1, 1),
    )
    x, y = prompts()
    assert torch.allclose(learner.predict(x, y), lab.baselines.Mean()(x, y), atol=1e-6)


@pytest.mark.parametrize(
    ("read_out", "words"),
    [
        (lambda states: states[:, 1::2, 0], "looks ahead: the prediction of y_0 changes with y_0"),
        (lambda states: states[:, :, 0], "read_out must return predictions"),
        (lambda states: states[:, ::2, 0] + torch.rand(1), "predictions change when it is called again"),
    ],
)
def test_slips_are_found_when_it_is_wrapped(read_out: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        lab.wrap(nn.Identity(), d=D, read_in=lab.interleave, read_out=read_out)


class Pair(NamedTuple):
    past: None
    states: Tensor


class Named(nn.Module):
    """A block that takes its states by name only, after a mask in the call, and returns them in a container."""

    def __init__(self, container: str) -> None:
        super().__init__()
        self.inner, self.container = nn.Linear(D, D), container

    def forward(self, *, states: Tensor, mask: Tensor) -> Any:
        out = states + self.inner(states * mask)
        made = {"tensor": out, "tuple": (None, out), "list": [out], "mapping": {"past": None, "states": out}}
        return (made | {"named tuple": Pair(None, out)})[self.container]


class Stacked(nn.Module):
    def __init__(self, container: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Named(container), Named(container)])

    def forward(self, tokens: Tensor) -> Tensor:
        for block in self.blocks:
            found = block(mask=torch.ones(()), states=tokens)
            found = found["states"] if isinstance(found, dict) else found
            tokens = found[-1] if isinstance(found, list | tuple) else found
        return tokens


@pytest.mark.parametrize("container", ["tensor", "tuple", "named tuple", "list", "mapping"])
def test_blocks_that_are_given_names_and_return_containers(container: str) -> None:
    """What goes into a block and comes out is kept, and an edit of it acts, however it is handed over."""
    module, (x, y) = Stacked(container), prompts()
    learner = lab.wrap(module, d=D, read_in=lab.interleave, read_out=lambda states: states[:, ::2, 0], blocks="blocks")
    names = [f"blocks.{number}.resid_{side}" for number in range(2) for side in ("pre", "post")]
    plain, cache = learner.run_with_cache(x, y, names)
    tokens = lab.interleave(x, y.clone().index_fill_(1, torch.tensor(N - 1), 0.0))
    assert torch.equal(cache["blocks.0.resid_pre"], tokens)
    assert torch.equal(cache["blocks.1.resid_pre"], cache["blocks.0.resid_post"])
    assert torch.equal(cache["blocks.1.resid_post"][:, ::2, 0], plain)
    for name in names:
        changed, _ = learner.run_with_cache(x, y, [], edits={name: torch.zeros_like})
        assert not torch.allclose(changed, plain), name


def test_a_hugging_face_model_with_a_head_is_refused_with_what_to_wrap(theirs: Theirs) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(theirs._backbone.config)
    with pytest.raises(InputError, match=r"wrap its body, model\.transformer or model\.model"):
        lab.wrap(model, d=D, read_in=lambda x, y: theirs._read_in(lab.interleave(x, y)), read_out=lambda one: one)


def test_lengths_that_were_not_measured_are_no_rows_of_a_table() -> None:
    found = lab.compare(lab.baselines.Ridge(0.5), lab.Linear(d=D), n_prompts=20, n_points=9)
    assert found.table("SPD", ks=[2, 8])[0] == ["SPD / d", "k=2", "k=8"]
    with pytest.raises(InputError, match=r"ILW was not measured at all of these lengths; got \[2, 3\]"):
        found.table("ILW", ks=[2, 3])


def test_what_is_no_such_checkpoint(theirs: Theirs, tmp_path: Path) -> None:
    state = dict(theirs.state_dict())
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(InputError, match=r"is a pickle; allowed: safetensors; convert it where you trust it"):
        lab.load_garg(tmp_path / "state.pt")
    for protocol in (0, 1):  # they begin as text does
        (tmp_path / "old.safetensors").write_bytes(pickle.dumps(state, protocol))
        with pytest.raises(InputError, match=r"is a pickle; allowed: safetensors; convert it where you trust it"):
            lab.load_garg(tmp_path / "old.safetensors")
    with pytest.raises(InputError, match=r"read_out\.bias; got no such tensor"):
        lab.load_garg({name: value for name, value in state.items() if name != "_read_out.bias"})
    with pytest.raises(InputError, match=r"no part of such a model; got lm_head"):
        lab.load_garg({**state, "lm_head": torch.zeros(1)})
    with pytest.raises(InputError, match=r"h\.1\.ln_1\.weight; got \(3,\)"):
        lab.load_garg({**state, "_backbone.h.1.ln_1.weight": torch.zeros(3)})
    weight = "_backbone.h.1.ln_1.weight"
    for wrong, words in (
        ({"transformer.h.1.ln_1.weight": state[weight]}, r"two tensors for h\.1\.ln_1\.weight"),
        ({weight: torch.full((WIDTH,), torch.nan)}, r"h\.1\.ln_1\.weight is broken; got NaN or infinity"),
        ({weight: torch.ones(WIDTH, dtype=torch.complex64)}, r"has no weights; got torch\.complex64"),
        ({weight: torch.ones(WIDTH, dtype=torch.int64)}, r"has no weights; got torch\.int64"),
        ({weight: torch.ones(WIDTH, device="meta")}, r"has no weights; got a tensor on the meta device"),
        ({3: torch.ones(WIDTH)}, r"no part of such a model; got 3"),
    ):
        with pytest.raises(InputError, match=words):
            lab.load_garg({**state, **wrong})
    for source in (None, 3, [state]):
        with pytest.raises(InputError, match="load_garg takes a safetensors file or a state dict"):
            lab.load_garg(source)
    made = lab.GPTConfig(n_layers=1, d_model=80, n_heads=2, d_mlp=160).build(d=D, n_points=N).init([0])
    odd = {f"_backbone.{name}": value for name, value in made.to_gpt2().items()}
    odd |= {"_read_in.weight": torch.ones(80, D), "_read_in.bias": torch.zeros(80)}
    odd |= {"_read_out.weight": torch.ones(1, 80), "_read_out.bias": torch.zeros(1)}
    with pytest.raises(InputError, match=r"heads of 32 numbers do not fit; got a width of 80; n_heads="):
        lab.load_garg(odd)
    assert lab.load_garg(odd, n_heads=5).config.n_heads == 5
    learner = lab.wrap(nn.Identity(), d=D, read_in=lab.interleave, read_out=lambda states: states[:, ::2, 0])
    with pytest.raises(InputError, match="a wrapped module is one model"):
        learner(torch.zeros(2, 1, 4, D), torch.zeros(2, 1, 4))
