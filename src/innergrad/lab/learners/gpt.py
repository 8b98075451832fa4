"""A GPT for vectors, and a stack of them.

A prompt (x_1, y_1, ..., x_n) becomes tokens, a GPT-2 reads them, and a linear read-out predicts the labels:

    interleaved (Akyürek et al.)   tokens x_1, y_1, x_2, y_2, ..., x_n;  causal;  a prediction of y_k at every x_k
    columns (Cheng et al.)         tokens (x_1; y_1), ..., (x_n; 0);  every token reads the first n - 1, none reads the
                                   last;  one prediction, of y_n, at the last token

    block:   r = r + W_O attention(LN(r)),    r = r + W_out gelu(W_in LN(r))          (pre-LN, GPT-2's)

Parameters have a leading dimension S, the models of the stack, and those of blocks a second one, L, the blocks. Its
activations have TransformerLens' names.

Shapes: S models, B prompts, n points, d coordinates, T tokens, D = d_model, H heads of Dh, L blocks, M = d_mlp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from innergrad import flops
from innergrad.config import check_choices
from innergrad.errors import InputError, integer, real
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.kernels.attention import attend, attention_pattern
from innergrad.lab.kernels.norms import add_norm, bias_gelu
from innergrad.lab.learners.base import Keep, Learner, LearnerConfig

# the pending addend of the residual stream: delta (S, ..., D), bias
Pending = tuple[Tensor, Tensor | None] | None


@dataclass(frozen=True)
class GPTConfig(LearnerConfig, kind="gpt"):
    """The shape of a GPT-2 for vectors. The defaults are the model of *Deep Optimizers*.

    Args:
        n_layers: blocks.
        d_model: width.
        n_heads: heads.
        d_mlp: hidden units of the MLP; 0 for no MLP.
        attention: ``softmax``, ``relu``, ``linear`` or ``exp``.
        normalise: what the last three are divided by: the ``count`` of tokens seen, its root (``sqrt``), or ``none``.
            The paper divides by the length of the prompt; the count keeps the future out.
        positions: ``learned`` as in GPT-2, ``rotary``, or ``none``.
        max_points: the longest prompts that learned positions are for, if longer than those of training. The positions
            beyond then stay as they were drawn.
        tokens: ``interleaved`` or ``columns``.
        layer_norm: False for none. Attention then sees the stream itself.
        tied: one block, applied n_layers times.
        qk_norm: queries and keys are scaled to one length.
        init_std: the standard deviation of initial weights. Weights that write into the stream have init_std / sqrt(2
            n_layers).
        zero_init: weights that write into the stream start at zero.
        weight_init: how weights are drawn. ``gpt2`` is as the two settings above say. ``uniform-scaling`` and
            ``normal`` are those of Akyürek et al. (2023, Table 1): uniform with variance 1 / inputs, and N(0, 1).
        bias_init: the same for biases. ``gpt2`` has zeros. A bias has one input: ``uniform-scaling`` has variance 1.
        position_init: the same for learned positions. Their inputs are the tokens.

    Examples:
        >>> from innergrad import lab
        >>> learner = lab.GPTConfig(n_layers=2, d_model=16, n_heads=2, d_mlp=16).build(d=3, n_points=5)
        >>> learner.stack
        1
    """

    n_layers: int = 12
    d_model: int = 256
    n_heads: int = 8
    d_mlp: int = 256
    attention: Literal["softmax", "relu", "linear", "exp"] = "softmax"
    normalise: Literal["count", "sqrt", "none"] = "count"
    positions: Literal["learned", "rotary", "none"] = "learned"
    max_points: int = 0
    tokens: Literal["interleaved", "columns"] = "interleaved"
    layer_norm: bool = True
    tied: bool = False
    qk_norm: bool = False
    init_std: float = 0.02
    zero_init: bool = False
    weight_init: Literal["gpt2", "uniform-scaling", "normal"] = "gpt2"
    bias_init: Literal["gpt2", "uniform-scaling", "normal"] = "gpt2"
    position_init: Literal["gpt2", "uniform-scaling", "normal"] = "gpt2"

    INITIAL: ClassVar[tuple[str, ...]] = ("init_std", "zero_init", "weight_init", "bias_init", "position_init")

    def __post_init__(self) -> None:
        check_choices(self, "learner.")
        for name in ("n_layers", "d_model", "n_heads"):
            integer(f"learner.{name}", getattr(self, name))
        integer("learner.d_mlp", self.d_mlp, low=0)
        integer("learner.max_points", self.max_points, low=0)
        real("learner.init_std", self.init_std, above=0.0)
        if self.d_model % self.n_heads:
            raise InputError(
                "learner.d_model must be a multiple of learner.n_heads", got=f"{self.d_model} and {self.n_heads}"
            )
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise InputError("rotary positions need heads of an even size", got=self.d_model // self.n_heads)

    def build(self, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> GPT:
        return GPT(self, d, max(n_points, self.max_points), stack, outputs)

    def activations(self, n_points: int) -> int:
        tokens = 2 * n_points - 1 if self.tokens == "interleaved" else n_points
        return self.n_layers * tokens * (10 * self.d_model + 3 * self.d_mlp + self.n_heads * tokens)

    def flops(self, d: int, n_points: int, *, seen: bool = False) -> flops.Flops:
        D, Dh, interleaved = self.d_model, self.d_model // self.n_heads, self.tokens == "interleaved"
        tokens, read = (2 * n_points - 1, n_points) if interleaved else (n_points, 1)
        pairs = tokens * (tokens + 1) // 2 if seen and interleaved else tokens * tokens
        each = flops.SOFTMAX if self.attention == "softmax" else 0 if self.attention == "linear" else 1
        block = flops.product(4, tokens, D, D) + flops.attention(self.n_heads, pairs, Dh, Dh, each)
        block += flops.mlp(tokens, D, self.d_mlp)
        embedding = flops.product(n_points, d, D) + flops.functions(n_points, D)  # of inputs, and of labels
        return embedding + self.n_layers * block + flops.product(read, D)


class GPT(Learner):
    """A stack of GPT-2s that read vectors; see the module."""

    FUSED = ("embed", "block", "read_out")

    def __init__(self, config: GPTConfig, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> None:
        super().__init__(d, stack, outputs)
        self.config, self.n_points = config, integer("n_points", n_points)
        self.block: Callable[..., tuple[Tensor, Pending]] = fused_block  # training may put a compiled one here
        blocks, D, M = 1 if config.tied else config.n_layers, config.d_model, config.d_mlp
        interleaved = config.tokens == "interleaved"
        before: dict[str, tuple[int, ...]] = {"W_E": (d + outputs, D), "b_E": (D,)}
        if config.positions == "learned":
            before["W_pos"] = ((2 * n_points - 1) if interleaved else n_points, D)
        inside: dict[str, tuple[int, ...]] = {"ln1_w": (D,), "ln1_b": (D,)} if config.layer_norm else {}
        inside |= {"W_QKV": (D, 3 * D), "b_QKV": (3 * D,), "W_O": (D, D), "b_O": (D,)}
        if M:
            inside |= {"ln2_w": (D,), "ln2_b": (D,)} if config.layer_norm else {}
            inside |= {"W_in": (D, M), "b_in": (M,), "W_out": (M, D), "b_out": (D,)}
        after: dict[str, tuple[int, ...]] = {"ln_final_w": (D,), "ln_final_b": (D,)} if config.layer_norm else {}
        after |= {"W_U": (D, outputs), "b_U": (outputs,)}
        for name, shape in {**before, **{name: (blocks, *shape) for name, shape in inside.items()}, **after}.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(stack, *shape)))
        self.in_blocks = tuple(inside)

    def alone(self) -> GPT:
        return GPT(self.config, self.d, self.n_points, outputs=self.outputs)

    @property
    def matrices(self) -> dict[str, int]:
        """Those of blocks; queries, keys and values are three side by side."""
        return {
            name: 3 if name == "W_QKV" else 1 for name in ("W_QKV", "W_O", "W_in", "W_out") if name in self.in_blocks
        }

    @property
    def decayed(self) -> set[str]:
        """Products, not gains, biases or positions."""
        return {name for name, _ in self.named_parameters() if name.startswith("W_") and name != "W_pos"}

    def draw(self, name: str, rng: CounterRNG, shape: torch.Size) -> Tensor:
        """GPT-2's initial weights, by default; the embedding keeps the size of its input."""
        one = torch.zeros(1, dtype=torch.int64)
        if name.startswith("ln"):
            return torch.ones(shape) if name.endswith("w") else torch.zeros(shape)
        kind = "bias" if name.startswith("b_") else "position" if name == "W_pos" else "weight"
        how, inputs = getattr(self.config, f"{kind}_init"), 1 if kind == "bias" else shape[-2]
        if how == "normal":
            return rng.normal(one, *shape)[0]
        if how == "uniform-scaling":
            return math.sqrt(12.0 / inputs) * (rng.uniform(one, *shape)[0] - 0.5)
        if kind == "bias":
            return torch.zeros(shape)
        std = self.config.init_std
        if name == "W_E":
            std = 1.0 / math.sqrt(self.d + self.outputs)
        if name in ("W_O", "W_out"):
            std = 0.0 if self.config.zero_init else std / math.sqrt(2 * self.config.n_layers)
        return std * rng.normal(one, *shape)[0]

    def forward(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None = None, keep: Keep | None = None
    ) -> Tensor:
        w = dict(self.named_parameters()) if weights is None else weights
        config, n = self.config, x.shape[2]
        if config.positions == "learned" and n > self.n_points:
            raise InputError(
                "learned positions end before the prompt does",
                got=f"{n} points",
                allowed=f"up to {self.n_points}",
                hint="train with learner.max_points that large, or with positions = 'rotary' or 'none'",
            )
        scale = self.scale_of(y)
        pending: Pending = None
        residual = self.embed(x, y / scale, w)
        layers = {name: w[name].unbind(1) for name in self.in_blocks}
        for number in range(config.n_layers):
            parameters = {name: layers[name][0 if config.tied else number] for name in layers}
            if keep is None:
                residual, pending = self.block(config, residual, pending, parameters)
            else:
                residual = block(config, residual, parameters, _below(keep, f"blocks.{number}."))
        return self.read_out(residual, pending, w, keep).to(scale.dtype) * scale

    def embed(self, x: Tensor, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """Tokens with their positions, (S, B, T, D)."""
        tokens = self.tokens(x, y, w)
        return tokens + w["W_pos"][:, None, : tokens.shape[2]] if "W_pos" in w else tokens

    def tokens(self, x: Tensor, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """Tokens (S, B, T, D): vectors (y; x) of d + outputs numbers, zero where missing (Akyürek et al.), embedded."""
        dtype, bias, k = w["W_E"].dtype, w["b_E"][:, None, None], self.outputs
        xs = product(x.to(dtype), w["W_E"][:, k:]) + bias
        if k == 1:  # a number times a vector is no product of matrices
            labels = y.to(dtype)[..., None] * w["W_E"][:, None, None, 0]
        else:
            labels = product(y.to(dtype), w["W_E"][:, :k])
        if self.config.tokens == "columns":
            return xs + torch.cat((labels[:, :, :-1], torch.zeros_like(labels[:, :, :1])), 2)
        return torch.stack((xs, labels + bias), 3).flatten(2, 3)[:, :, :-1]

    def read_out(self, residual: Tensor, pending: Pending, w: Mapping[str, Tensor], keep: Keep | None = None) -> Tensor:
        """Predictions (S, B, m), or (S, B, m, outputs), from the tokens of inputs, in units of the scale."""
        where = slice(None, None, 2) if self.config.tokens == "interleaved" else slice(-1, None)
        residual = residual[:, :, where]
        if keep is None:
            chosen = None if pending is None else (pending[0][:, :, where], pending[1])
            x = normalised_sum(residual, chosen, w, "ln_final")[1]
        else:
            x = normed(keep("resid_final", residual), w, "ln_final", keep)
        found = product(x, w["W_U"]) + w["b_U"][:, None, None]
        return found[..., 0] if self.outputs == 1 else found

    def load_gpt2(self, state: Mapping[str, Tensor]) -> GPT:
        """Takes the blocks, positions and final LayerNorm of a Hugging Face GPT-2 (``GPT2Model.state_dict()``)."""
        self._single("load_gpt2")
        with torch.no_grad():
            for home, value in self.to_gpt2().items():
                value.copy_(state[home][: len(value)])
        return self

    def to_gpt2(self) -> dict[str, Tensor]:
        """Views of the parameters by their names in a Hugging Face GPT-2."""
        self._single("to_gpt2")
        config = self.config
        if config.tied or not config.d_mlp or not config.layer_norm or config.positions != "learned":
            allowed = "an MLP, LayerNorm, learned positions, blocks that are not tied"
            raise InputError("these blocks are not GPT-2's", got=repr(config), allowed=allowed)
        own = {name: parameter.detach()[0] for name, parameter in self.named_parameters()}
        found = {home: own[name] for name, home in GPT2.items()}
        for number in range(self.config.n_layers):
            found |= {f"h.{number}.{home}": own[name][number] for name, home in GPT2_BLOCK.items()}
        return found


#: Where Hugging Face's GPT-2 keeps the parameters; matrices are stored (in, out) there too.
GPT2 = {"W_pos": "wpe.weight", "ln_final_w": "ln_f.weight", "ln_final_b": "ln_f.bias"}
GPT2_BLOCK = {
    "ln1_w": "ln_1.weight",
    "ln1_b": "ln_1.bias",
    "W_QKV": "attn.c_attn.weight",
    "b_QKV": "attn.c_attn.bias",
    "W_O": "attn.c_proj.weight",
    "b_O": "attn.c_proj.bias",
    "ln2_w": "ln_2.weight",
    "ln2_b": "ln_2.bias",
    "W_in": "mlp.c_fc.weight",
    "b_in": "mlp.c_fc.bias",
    "W_out": "mlp.c_proj.weight",
    "b_out": "mlp.c_proj.bias",
}


def block(config: GPTConfig, residual: Tensor, w: Mapping[str, Tensor], keep: Keep) -> Tensor:
    """One block, plainly, everything with its name: residual (S, B, T, D) -> the same; w (S, ...)."""
    residual = keep("resid_pre", residual)
    qkv = product(normed(residual, w, "ln1", keep), w["W_QKV"]) + w["b_QKV"][:, None, None]
    qkv = keep("attn.qkv", turned(qkv, config))
    pattern = keep("attn.pattern", pattern_of(qkv, config))
    z = keep("attn.z", attend(qkv, config.n_heads, pattern=pattern))
    residual = residual + keep("attn_out", product(z, w["W_O"]) + w["b_O"][:, None, None])
    residual = keep("resid_mid", residual)
    if config.d_mlp:
        hidden = keep("mlp.pre", product(normed(residual, w, "ln2", keep), w["W_in"]) + w["b_in"][:, None, None])
        hidden = keep("mlp.post", F.gelu(hidden, approximate="tanh"))
        residual = residual + keep("mlp_out", product(hidden, w["W_out"]) + w["b_out"][:, None, None])
    return keep("resid_post", residual)


def normed(residual: Tensor, w: Mapping[str, Tensor], name: str, keep: Keep) -> Tensor:
    """The input of a sublayer: the LayerNorm of the residual, if there is one."""
    if f"{name}_w" not in w:
        return residual
    return keep(name, add_norm(residual, None, None, w[f"{name}_w"], w[f"{name}_b"])[1])


def fused_block(
    config: GPTConfig, residual: Tensor, pending: Pending, w: Mapping[str, Tensor]
) -> tuple[Tensor, Pending]:
    """The same block in fewer operations. The output of a sublayer is added where the next one reads, with its bias and
    the LayerNorm there. So it takes, and returns, a residual and a term that is still to be added to it.
    """
    residual, x = normalised_sum(residual, pending, w, "ln1")
    qkv, pattern = product(x, w["W_QKV"]), None
    bias: Tensor | None = w["b_QKV"]
    if config.qk_norm or config.positions == "rotary" or config.tokens == "columns":
        qkv, bias = turned(qkv + w["b_QKV"][:, None, None], config), None
    if config.tokens == "columns":
        pattern = pattern_of(qkv, config)
    z = attend(qkv, config.n_heads, config.attention, config.normalise, pattern=pattern, bias=bias)
    pending = (product(z, w["W_O"]), w["b_O"])
    if config.d_mlp:
        residual, x = normalised_sum(residual, pending, w, "ln2")
        pending = (product(bias_gelu(product(x, w["W_in"]), w["b_in"]), w["W_out"]), w["b_out"])
    return residual, pending


def normalised_sum(residual: Tensor, pending: Pending, w: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """The residual with the pending term, and the input of a sublayer."""
    delta, bias = (None, None) if pending is None else pending
    if f"{name}_w" in w:
        return add_norm(residual, delta, bias, w[f"{name}_w"], w[f"{name}_b"])
    residual = residual if delta is None else residual + delta
    residual = residual if bias is None else residual + bias[:, None, None]
    return residual, residual


def product(x: Tensor, w: Tensor) -> Tensor:
    """x (S, ..., D), w (S, D, E) -> (S, ..., E): one batched product for the stack."""
    flat = x.flatten(1, -2)
    # A stack of one is squeezed, not indexed: the gradient of an index is a copy.
    made = torch.mm(flat.squeeze(0), w.squeeze(0)) if len(x) == 1 else torch.bmm(flat, w)
    return made.view(*x.shape[:-1], w.shape[-1])


def turned(qkv: Tensor, config: GPTConfig) -> Tensor:
    """Queries and keys normalised (qk_norm) and rotated by their position (rotary); (S, B, T, 3 D) -> the same."""
    heads = qkv.unflatten(-1, (3, config.n_heads, -1))
    qk, v = heads[..., :2, :, :], heads[..., 2:, :, :]
    if config.qk_norm:
        qk = F.rms_norm(qk, qk.shape[-1:])
    if config.positions == "rotary":
        half = qk.shape[-1] // 2
        frequency = 10_000.0 ** (-torch.arange(half, device=qkv.device) / half)
        angle = torch.arange(qkv.shape[2], device=qkv.device)[:, None] * frequency
        cos, sin = (f(angle)[:, None, None].to(qkv.dtype) for f in (torch.cos, torch.sin))
        a, b = qk[..., :half], qk[..., half:]
        qk = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((qk, v), -3).flatten(-3)


def pattern_of(qkv: Tensor, config: GPTConfig) -> Tensor:
    """The weights of attention, (S, B, H, T, T). Of stacked columns no token reads the last, the query; of others none
    reads a later one.
    """
    length = qkv.shape[-2]
    hidden = torch.arange(length, device=qkv.device) == length - 1 if config.tokens == "columns" else None
    return attention_pattern(qkv, config.n_heads, config.attention, config.normalise, hidden)


def _below(keep: Keep, prefix: str) -> Keep:
    return lambda name, value: keep(prefix + name, value)
