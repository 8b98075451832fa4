"""A model from elsewhere as a learner: measured, looked into and compared like those of the lab.

    prompt x (B, n, d), y (B, n)  --read_in-->  tokens  --module-->  states  --read_out-->  predictions (B, n)

The module is anybody's ``torch.nn.Module``, a Hugging Face model among them. What it computes stays its own business.
Wrapping adds what the lab asks of a learner: ``predict``, and ``run_with_cache`` with edits, by hooks on its parts.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from innergrad.errors import InputError
from innergrad.lab.checks import check_no_peeking
from innergrad.lab.learners.base import Keep, Learner

ReadIn = Callable[[Tensor, Tensor], Tensor]
ReadOut = Callable[[Tensor], Tensor]
CHECKED = 4  # points of the prompts that a wrapped module is tried on


def wrap(
    module: nn.Module, *, d: int, read_in: ReadIn, read_out: ReadOut, blocks: str = "", outputs: int = 1
) -> Wrapped:
    """A model of your own as a learner, for evaluation, probes and hooks.

    It is tried on a few prompts: a prediction that changes with its own label, or with later points, is an
    ``InputError``. The module is put into evaluation mode. The lab does not train it.

    Args:
        module: from tokens to states. A Hugging Face model without a head (``GPT2Model``) gets the tokens as
            ``inputs_embeds``, and its last hidden states are taken.
        d: the number of inputs.
        read_in: from points (B, n, d) and labels (B, n) to tokens. ``lab.interleave`` makes the usual ones.
        read_out: from states to predictions: (B, n), entry k that of label k; or (B, 1), that of the last label.
        blocks: the name of the list of blocks in the module, ``h`` in GPT-2, ``layers`` in Llama. What goes into a
            block and comes out of it then has the lab's name, ``blocks.0.resid_pre`` and ``blocks.0.resid_post``, so
            that probes find it.
        outputs: numbers of a label. If there are several, labels and predictions have one more axis of so many.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> narrow, wide = torch.nn.Linear(2, 8), torch.nn.Linear(8, 1)
        >>> learner = lab.wrap(
        ...     torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(8, 8)),
        ...     d=2,
        ...     read_in=lambda x, y: narrow(lab.interleave(x, y)),
        ...     read_out=lambda states: wide(states)[:, ::2, 0],
        ... )
        >>> predictions, cache = learner.run_with_cache(torch.zeros(3, 5, 2), torch.zeros(3, 5), ["0", "1"])
        >>> tuple(predictions.shape), tuple(cache["1"].shape)
        ((3, 5), (3, 10, 8))
    """
    if not isinstance(module, nn.Module):
        raise InputError("wrap takes a torch.nn.Module", got=type(module).__name__)
    for name, function in (("read_in", read_in), ("read_out", read_out)):
        if not callable(function):
            raise InputError(f"{name} is a function", got=type(function).__name__)
    made = Wrapped(module.eval(), d, read_in, read_out, blocks, outputs)
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    name = f"the wrapped {type(module).__name__}"
    check_no_peeking(name, made.predict, made.d, CHECKED, device=device, outputs=made.outputs)
    return made


def interleave(x: Tensor, y: Tensor) -> Tensor:
    """Tokens x1, y1, x2, y2, ... of one width d: a label is (y, 0, ..., 0). The layout of Garg et al. (2022).

    A label that is a vector takes the first places, so it has at most d numbers.

    Args:
        x: points (B, n, d).
        y: labels (B, n), or (B, n, k).

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> lab.interleave(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[3.0]]))
        tensor([[[1., 2.],
                 [3., 0.]]])
    """
    numbers = y if y.ndim == 3 else y[..., None]
    if numbers.shape[-1] > x.shape[-1]:
        got, allowed = f"{numbers.shape[-1]} numbers", f"{x.shape[-1]}, those of a point"
        raise InputError("a label is wider than a point", got=got, allowed=allowed)
    labels = torch.cat((numbers, x.new_zeros(*x.shape[:2], x.shape[-1] - numbers.shape[-1])), -1)
    return torch.stack((x, labels), 2).flatten(1, 2)


class Wrapped(Learner):
    """A stack of one; see ``wrap``. Activations have the names of the module's parts, ``h.0.attn``, beside ``read_in``:
    of each, the first tensor that it returns. A part that is called again adds ``@2``, ``@3``, ... Those of ``blocks``
    have the lab's names instead.
    """

    def __init__(
        self, module: nn.Module, d: int, read_in: ReadIn, read_out: ReadOut, blocks: str = "", outputs: int = 1
    ) -> None:
        super().__init__(d, outputs=outputs)
        self.module, self.read_in, self.read_out = module, read_in, read_out
        self.blocks = _blocks(module, blocks) if blocks else {}
        self.embeds = "inputs_embeds" in inspect.signature(module.forward).parameters

    @property
    def matrices(self) -> dict[str, int]:
        return {}

    def model(self, number: int) -> Learner:
        if number != 0:
            raise InputError("no such model in the stack", got=number, allowed="0 to 0")
        return self

    def extra_repr(self) -> str:
        return f"d={self.d}, {sum(parameter.numel() for parameter in self.parameters()):,} parameters"

    def forward(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None = None, keep: Keep | None = None
    ) -> Tensor:
        if weights is not None or len(x) != 1:
            hint = "to train a model of your own, write a LearnerConfig and a Learner"
            raise InputError("a wrapped module is one model, with its own weights", hint=hint)
        dtype = next((one.dtype for one in self.parameters() if one.is_floating_point()), x.dtype)
        points, labels = x[0].to(dtype), y[0].to(dtype, copy=True)
        labels[:, -1] = 0.0  # a place to fill
        tokens = self.read_in(points, labels)
        if keep is not None:
            tokens = keep("read_in", tokens[None])[0]
        with _watched(self.module, keep, self.blocks):
            found = self.module(inputs_embeds=tokens) if self.embeds else self.module(tokens)
        states = found if isinstance(found, Tensor) else getattr(found, "last_hidden_state", None)
        if states is None and isinstance(found, tuple) and found:
            states = found[0]
        if not isinstance(states, Tensor):
            allowed = "a tensor, a tuple that begins with one, or last_hidden_state"
            hint = "a Hugging Face model with a head: wrap its body, model.transformer or model.model"
            raise InputError("the module must return states", got=type(found).__name__, allowed=allowed, hint=hint)
        predictions = self.read_out(states)
        wanted = [(*y.shape[1:],), (y.shape[1], 1, *y.shape[3:])]
        if not isinstance(predictions, Tensor) or tuple(predictions.shape) not in wanted:
            got = tuple(predictions.shape) if isinstance(predictions, Tensor) else type(predictions).__name__
            raise InputError("read_out must return predictions", got=got, allowed=f"{wanted[0]} or {wanted[1]}")
        return predictions[None].to(y.dtype)


def _blocks(module: nn.Module, name: str) -> dict[str, str]:
    """The names of the parts that are blocks -> their names in the lab."""
    parts = dict(module.named_modules())
    if not isinstance(parts.get(name), nn.ModuleList | nn.Sequential):
        lists = [one for one, part in parts.items() if isinstance(part, nn.ModuleList | nn.Sequential) and one]
        raise InputError("blocks is the name of a list of modules", got=repr(name), allowed=", ".join(lists) or "none")
    return {f"{name}.{number}": f"blocks.{number}" for number, _ in enumerate(parts[name].children())}


class _Watch:
    """Shows activations to ``keep`` while a module runs, and puts what it returns in their places."""

    def __init__(self, keep: Keep) -> None:
        self.keep, self.seen = keep, dict[str, int]()

    def show(self, name: str, value: Tensor) -> Tensor:
        self.seen[name] = self.seen.get(name, 0) + 1
        again = "" if self.seen[name] == 1 else f"@{self.seen[name]}"
        return self.keep(name + again, value[None])[0]

    def first(self, name: str, values: Any, places: Iterable[Any]) -> Any:
        """The same values, a tuple, a list or a mapping, with the first tensor in these places shown."""
        place = next((one for one in places if isinstance(values[one], Tensor)), None)
        if place is None:
            return values
        found = list(values) if isinstance(values, tuple) else copy.copy(values)
        found[place] = self.show(name, values[place])
        if isinstance(values, tuple):
            return type(values)(*found) if hasattr(values, "_fields") else tuple(found)
        return found

    def after(self, name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(part: nn.Module, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple | list):
                return self.first(name, output, range(len(output)))
            if isinstance(output, MutableMapping):
                return self.first(name, output, list(output))
            return self.show(name, output) if isinstance(output, Tensor) else output

        return hook

    def before(self, name: str) -> Callable[[nn.Module, Any, Any], Any]:
        """Of what a part is given by name, the first in the order of its own arguments counts."""

        def hook(part: nn.Module, inputs: Any, named: Any) -> Any:
            if any(isinstance(one, Tensor) for one in inputs):
                return self.first(name, inputs, range(len(inputs))), named
            known = [one for one in inspect.signature(part.forward).parameters if one in named]
            return inputs, self.first(name, named, dict.fromkeys([*known, *named]))

        return hook


@contextmanager
def _watched(module: nn.Module, keep: Keep | None, blocks: Mapping[str, str]) -> Iterator[None]:
    """While it runs, ``keep`` sees what every part of the module returns, and may replace it."""
    handles = []
    if keep is not None:
        watch = _Watch(keep)
        for name, part in module.named_modules():
            if name in blocks:
                handles.append(
                    part.register_forward_pre_hook(watch.before(f"{blocks[name]}.resid_pre"), with_kwargs=True)
                )
                handles.append(part.register_forward_hook(watch.after(f"{blocks[name]}.resid_post")))
            elif name:
                handles.append(part.register_forward_hook(watch.after(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
