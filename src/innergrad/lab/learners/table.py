"""A learner of tables: a prompt is a set of rows, some with labels, the demonstrations, and some without, the queries.

    cells     a row is one token for each column, one for its label, and a few that are free: d + 1 + free tokens.
              n_cells layers:   h = h + attention over the tokens of a row (norm(h))
                                h = h + attention over the rows of a column (norm(h))
                                h = h + MLP(norm(h))
              With ``guess``, the label's token also sees what plain methods predict from the other demonstrations.
    rows      a row becomes one token, from its label's token and the free ones.
              n_rows layers:    r = r + attention over rows (norm(r)),    r = r + MLP(norm(r))
    answer    a linear map of norm(r): chances of bins (numbers), or of classes.

Attention over rows reads demonstrations only. There are no positions, of rows or of columns. So, up to rounding, an
answer does not change with the order of the demonstrations, with the other queries, with the other prompts of a batch,
with the order of columns, or with the names of classes. Columns that are not there are read by none.

A label that is a vector has a distribution for each of its numbers. They are prompts of their own, with the same cells:
every number is answered as if it were the only one, and the same weights serve vectors of any size.

Attention over k rows multiplies its scores by 1 + heat log(k / 128), one heat a head, which is learned: the scores of
longer prompts are sharper.

Shapes: S models, B prompts, n rows, d columns, q numbers of a label, c = d + 1 + free tokens of a row, D width, H heads
of Dh. N = S B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from innergrad import flops
from innergrad.config import check_choices
from innergrad.errors import InputError, integer, real
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import folded, require_one_number
from innergrad.lab.learners import table_features as features
from innergrad.lab.learners import table_guesses as guesses
from innergrad.lab.learners.answers import TOP, ClassAnswer, NumberAnswer, bin_of, borders
from innergrad.lab.learners.base import Keep, Learner, LearnerConfig
from innergrad.lab.learners.gpt import product
from innergrad.lab.learners.table_features import Seen
from innergrad.lab.learners.table_layers import (
    HEAD,
    HIDDEN,
    NORMAL,
    Context,
    Masks,
    Weights,
    cell_layer,
    layers,
    normed,
    row_layer,
    wide,
)

HEAT = 0.2  # at first
MOST_CLASSES = 10
WAVES_Z, WAVES_RANK = (0.8, 1.6, 3.2, 6.4, 12.8), (1.6, 3.2, 6.4, 12.8, 25.6)  # frequencies of sines
WAVES_TAG = 16
INPUTS = 4 + 2 * (len(WAVES_Z) + len(WAVES_RANK))  # of a cell, and of a label: a multiple of 8, for fast products
BLOCK = 32  # queries are read in multiples of so many
MOST_CELLS, MOST_ROWS = 2**16, 2**13  # tokens, and queries, that ``answer`` has in hand at a time
HUBER = 3.0  # errors beyond, in standard deviations of the labels, count linearly


@dataclass(frozen=True)
class TableConfig(LearnerConfig, kind="table"):
    """The shape of a learner of tables: sets of rows, cells as tokens.

    Args:
        labels: ``numbers``, or ``classes``, at most ten.
        n_cells: layers on cells.
        d_cell: their width; a multiple of 32.
        d_cell_mlp: hidden units of their MLPs.
        free: tokens of a row that stand for no cell.
        n_rows: layers on rows.
        d_row: their width; a multiple of 32.
        d_row_mlp: hidden units of their MLPs.
        guess: rows also see what ridge regression, and gradient descent with a kernel, say about their label.
        bins: of the distribution of a number.
        least: demonstrations of a prompt in training, at the least. The number is drawn for each prompt.
        most: demonstrations at the most, as a share of the rows.

    Examples:
        >>> from innergrad import lab
        >>> learner = lab.TableConfig(n_cells=1, d_cell=32, n_rows=1, d_row=32).build(d=3, n_points=16)
        >>> learner.stack
        1
    """

    by_component: ClassVar[bool] = True

    labels: Literal["numbers", "classes"] = "numbers"
    n_cells: int = 6
    d_cell: int = 128
    d_cell_mlp: int = 256
    free: int = 3
    n_rows: int = 5
    d_row: int = 256
    d_row_mlp: int = 384
    guess: bool = True
    bins: int = 128
    least: int = 8
    most: float = 0.875

    def __post_init__(self) -> None:
        check_choices(self, "learner.")
        for name in ("n_cells", "d_cell", "d_cell_mlp", "n_rows", "d_row", "d_row_mlp", "least"):
            integer(f"learner.{name}", getattr(self, name))
        integer("learner.free", self.free, low=0)
        integer("learner.bins", self.bins, low=2)
        real("learner.most", self.most, above=0.0)
        if self.most >= 1.0:
            raise InputError("learner.most is a share of the rows", got=self.most, allowed="less than 1")
        for name in ("d_cell", "d_row"):
            if getattr(self, name) % HEAD:
                raise InputError(f"learner.{name} is a multiple of {HEAD}", got=getattr(self, name))

    @property
    def outputs(self) -> int:
        return self.bins if self.labels == "numbers" else MOST_CLASSES

    @property
    def codes(self) -> int:
        """Numbers that a label is embedded from."""
        return INPUTS if self.labels == "numbers" else MOST_CLASSES

    @property
    def guess_inputs(self) -> int:
        """Numbers that guesses are embedded from."""
        if self.labels == "numbers":
            return 2 * (guesses.NUMBERS + 1) + 2 * len(WAVES_Z)
        return (guesses.CLASSES + 1) * (MOST_CLASSES + 1)

    def demonstrations(self, n: int) -> int:
        """Of a prompt of n rows in training, at the most."""
        return max(1, min(n - 1, round(self.most * n)))

    def build(self, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> TableLearner:
        if self.labels == "classes":
            require_one_number("a learner of classes", outputs=outputs)
        return TableLearner(self, d, n_points, stack, outputs)

    def activations(self, n_points: int) -> int:
        """For prompts of 20 columns."""
        tokens = 21 + self.free
        cells = self.n_cells * tokens * (14 * self.d_cell + 3 * self.d_cell_mlp)
        return n_points * (cells + self.n_rows * (10 * self.d_row + 3 * self.d_row_mlp))

    def flops(self, d: int, n_points: int, *, seen: bool = False) -> flops.Flops:
        """Every row reads as many demonstrations as training has at the most; with ``seen``, as it has on average."""
        n, c, D, E = n_points, d + 1 + self.free, self.d_cell, self.d_row
        keys = self.demonstrations(n)
        keys = (keys + min(self.least, keys)) // 2 if seen else keys
        cell = flops.product(8, n * c, D, D) + flops.mlp(n * c, D, self.d_cell_mlp)
        cell += flops.attention(D // HEAD, n * c * c, HEAD, HEAD, flops.SOFTMAX)
        cell += flops.attention(D // HEAD, c * n * keys, HEAD, HEAD, flops.SOFTMAX)  # the last layer has less to do
        row = flops.product(4, n, E, E) + flops.mlp(n, E, self.d_row_mlp)
        row += flops.attention(E // HEAD, n * keys, HEAD, HEAD, flops.SOFTMAX)
        between = flops.product(n, (1 + self.free) * D, E) + flops.product(n, E, self.outputs)
        return flops.product(n * (d + 1), INPUTS, D) + self.n_cells * cell + between + self.n_rows * row


class TableLearner(Learner):
    """A stack of learners of tables; see the module. ``answer`` is for users, ``objective`` for training.

    Args:
        config: the shape.
        d: columns of a table in training, at the most.
        n_points: rows of a table in training.
        stack: S.
        outputs: numbers of a label in training. ``answer`` takes any.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> shape = lab.TableConfig(n_cells=1, d_cell=32, n_rows=1, d_row=32)
        >>> learner = shape.build(d=3, n_points=16).init([0])
        >>> x, y = torch.randn(1, 7, 3), torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
        >>> answer = learner.answer(x, y)  # of the last two rows
        >>> tuple(answer.mean.shape), tuple(answer.quantile([0.1, 0.9]).shape)
        ((1, 2), (1, 2, 2))
        >>> tuple(learner.answer(x, torch.stack((y, -y, y**2), 2)).mean.shape)  # labels of three numbers
        (1, 2, 3)
    """

    FUSED: ClassVar[tuple[str, ...]] = ("embed", "cell_layer", "to_rows", "row_layer", "read_out", "losses")
    exchangeable: ClassVar[bool] = True  # the order of columns, and the names of classes, change no answer
    tags: Tensor
    centres: Tensor
    waves_z: Tensor
    waves_rank: Tensor

    def __init__(self, config: TableConfig, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> None:
        super().__init__(d, stack, outputs)
        self.config, self.n_points = config, integer("n_points", n_points)
        self.cell_layer, self.row_layer = cell_layer, row_layer  # training may put compiled ones here
        D, E, M = config.d_cell, config.d_row, features.STATISTICS + 2 * WAVES_TAG
        M += 0 if config.labels == "numbers" else MOST_CLASSES
        before: dict[str, tuple[int, ...]] = {"W_cell": (INPUTS, D), "W_column": (M, D)}
        before |= {"W_label": (config.codes, D), "b_label": (D,), "b_unknown": (D,), "b_free": (config.free, D)}
        before |= {"W_guess": (config.guess_inputs, D)} if config.guess else {}
        cells = {"norm1": (D,), "W_QKV1": (D, 3 * D), "W_O1": (D, D)}
        cells |= {"norm2": (D,), "W_QKV2": (D, 3 * D), "W_O2": (D, D), "heat": (D // HEAD,)}
        cells |= {"norm3": (D,), "W_in": (D, config.d_cell_mlp), "W_out": (config.d_cell_mlp, D)}
        rows = {"norm1": (E,), "W_QKV": (E, 3 * E), "W_O": (E, E), "heat": (E // HEAD,)}
        rows |= {"norm2": (E,), "W_in": (E, config.d_row_mlp), "W_out": (config.d_row_mlp, E)}
        between: dict[str, tuple[int, ...]] = {
            "norm_cell": ((1 + config.free) * D,),
            "W_row": ((1 + config.free) * D, E),
        }
        after: dict[str, tuple[int, ...]] = {"norm_final": (E,), "W_U": (E, config.outputs), "b_U": (config.outputs,)}
        shapes = before | {f"cells_{name}": (config.n_cells, *shape) for name, shape in cells.items()} | between
        shapes |= {f"rows_{name}": (config.n_rows, *shape) for name, shape in rows.items()} | after
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(stack, *shape)))
        self.in_cells, self.in_rows = tuple(cells), tuple(rows)
        with torch.device("cpu"):  # a learner without storage has them, too: torch takes a second to begin without
            edges = borders(config.bins)
            constants = {"tags": tag_waves(), "centres": ((edges[1:] + edges[:-1]) / 2.0).float()}
            constants |= {"waves_z": torch.tensor(WAVES_Z), "waves_rank": torch.tensor(WAVES_RANK)}
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def alone(self) -> TableLearner:
        return TableLearner(self.config, self.d, self.n_points, outputs=self.outputs)

    @property
    def matrices(self) -> dict[str, int]:
        """Those of layers, and the map from cells to rows; queries, keys and values are three side by side."""
        inside = [f"cells_{name}" for name in self.in_cells] + [f"rows_{name}" for name in self.in_rows]
        return {name: 3 if "W_QKV" in name else 1 for name in (*inside, "W_row") if "W_" in name}

    @property
    def decayed(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if "W_" in name}

    def draw(self, name: str, rng: CounterRNG, shape: torch.Size) -> Tensor:
        """Inputs of matrices keep their size. Matrices that write into a stream are zero, and so is the read-out."""
        one = torch.zeros(1, dtype=torch.int64)
        if "norm" in name:
            return torch.ones(shape)
        if name.endswith("heat"):
            return torch.full(shape, HEAT)
        if name in ("b_unknown", "b_free"):
            return 0.5 * rng.normal(one, *shape)[0]
        if name.startswith("b_") or name == "W_U" or any(part in name for part in ("W_O", "W_out")):
            return torch.zeros(shape)
        return rng.normal(one, *shape)[0] / math.sqrt(
            1.0 if name == "W_label" and shape[0] == MOST_CLASSES else shape[-2]
        )

    # ------------------------------------------------------------------------------------------------------- training

    def objective(self, x: Tensor, y: Tensor, weights: Weights, step: Tensor, points: Tensor | None = None) -> Tensor:
        """Cross-entropy of the queries' labels, (S,); of numbers also the squared error of the mean.

        The first rows of a prompt are demonstrations. How many is drawn for each prompt, by a counter.
        """
        x, y = folded(x, y) if y.ndim == 4 else (x, y)
        S, B, n, _ = x.shape
        keys = self.config.demonstrations(n)
        k = self.split(step, S * B, keys if points is None else (points - 1).clamp(max=keys), x.device)
        x, y = x.flatten(0, 1), y.flatten(0, 1)
        rows = torch.arange(n, device=x.device)
        shown = rows < k[:, None]
        asked = ~shown if points is None else ~shown & (rows < points)
        table, codes, about = self.read(x, y, shown, keys)
        if self.config.labels == "numbers":
            location, scale = about
            targets = (y - location[:, None]) / torch.where(scale > 0, scale, 1.0)[:, None]
            targets = targets.clamp(-TOP, TOP).float()  # beyond, there are no bins
            known = (scale > 0)[:, None]
            asked = asked & known
        else:
            targets = about[0].argsort(1).gather(1, y.long().clamp(0, MOST_CLASSES - 1))
            known = codes.sum(1) > 0
            asked = asked & known.gather(1, targets)
        logits, _ = self.network(table, codes, shown, weights, S, keys=keys)
        return self.losses(logits.flatten(0, 1), targets, asked, known).view(S, B).mean(1)

    def split(self, step: Tensor, prompts: int, most: int | Tensor, device: torch.device) -> Tensor:
        """How many rows of each prompt of a step are demonstrations, (N,)."""
        index = step * prompts + torch.arange(prompts, device=device)
        least = self.config.least
        low = min(most, least) if isinstance(most, int) else most.clamp(max=least)
        share = CounterRNG.of(0, "split of tables", device).uniform(index, 1)[:, 0]
        return low + (share * (most - low + 1)).long()

    def read(self, x: Tensor, y: Tensor, shown: Tensor, keys: int) -> tuple[Seen, Tensor, tuple[Tensor, ...]]:
        """Tables x (N, n, d), y (N, n) without units: cells, labels, and how to get back: location and scale of
        numbers, each (N,), or the names of the classes in their order, (N, 10).

        ``keys``: so many rows, the first, may be demonstrations.
        """
        classes = self.config.labels == "classes"
        if classes:
            codes = features.class_codes(y, shown, MOST_CLASSES)
            table, codes, names = features.in_order(features.seen(x, shown, codes, True), codes)
            about: tuple[Tensor, ...] = (names,)
        else:
            about = features.location_scale(y, shown)
            codes = features.number_codes(y, shown, *about)
            table = features.seen(x, shown, codes, False)
        if self.config.guess:
            strength, known = table.columns[..., features.STRENGTH], codes if classes else codes[..., :1]
            guess = guesses.guessed(table.z, table.present, strength, known, shown, keys, classes)
            table = table._replace(guess=guess)
        return table, codes, about

    def losses(self, logits: Tensor, targets: Tensor, asked: Tensor, known: Tensor) -> Tensor:
        """(N,): of each prompt, the mean over the rows that are asked."""
        count = asked.sum(1).clamp(min=1)
        logits = logits.float()
        if self.config.labels == "classes":
            logits = logits.masked_fill(~known[:, None], HIDDEN)
            found = logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]
            return torch.where(asked, found, 0.0).sum(1) / count
        place = bin_of(targets, self.config.bins)
        found = logits.logsumexp(-1) - logits.gather(-1, place[..., None])[..., 0]
        error = (logits.softmax(-1) @ self.centres - targets).abs()
        squared = torch.where(error < HUBER, error.square(), HUBER * (2.0 * error - HUBER))
        return torch.where(asked, found + squared, 0.0).sum(1) / count

    # ---------------------------------------------------------------------------------------------------- the network

    def network(
        self,
        table: Seen,
        codes: Tensor,
        shown: Tensor,
        weights: Weights | None,
        stack: int = 1,
        *,
        keys: int | None = None,
        contexts: Sequence[Context] | None = None,
        keeps: bool = False,
        keep: Keep | None = None,
        log_k: Tensor | None = None,
        full: bool = False,
    ) -> tuple[Tensor, list[Context]]:
        """Logits (S, B, n, outputs), and with ``keeps`` the keys and values of every layer.

        ``keys``: so many rows, the first, may be demonstrations; all by default. ``contexts``: keys and values of
        demonstrations that were read before, whose number ``log_k`` tells; all rows here are then queries. ``full``: no
        column is absent.
        """
        w = dict(self.named_parameters()) if weights is None else weights
        N, n = shown.shape
        keys = n if keys is None else keys
        free = table.present.new_ones(N, 1 + self.config.free)
        tokens = None if full else torch.where(torch.cat((table.present, free), 1), 0.0, HIDDEN)
        log_k = (shown.sum(1).clamp(min=1) / NORMAL).log() if log_k is None else log_k
        masks = Masks(tokens, torch.where(shown[:, :keys], 0.0, HIDDEN), log_k)
        h = self.embed(table, codes, shown, w, stack)
        found: list[Context] = []
        for number, layer in enumerate(layers(w, "cells_", self.in_cells, self.config.n_cells)):
            kept = 1 + self.config.free if number == self.config.n_cells - 1 else h.shape[3]
            before = None if contexts is None else contexts[number]
            h, context = self.cell_layer(h, layer, masks, before, keeps, kept)
            h = h if keep is None else keep(f"cells.{number}.resid_post", h)
            found += [] if context is None else [context]
        r = self.to_rows(h, w)
        for number, layer in enumerate(layers(w, "rows_", self.in_rows, self.config.n_rows)):
            before = None if contexts is None else contexts[self.config.n_cells + number]
            r, context = self.row_layer(r, layer, masks, before, keeps)
            r = r if keep is None else keep(f"rows.{number}.resid_post", r)
            found += [] if context is None else [context]
        return self.read_out(r, w), found

    def embed(self, table: Seen, codes: Tensor, shown: Tensor, w: Weights, stack: int) -> Tensor:
        """The tokens of the cells, labels and free ones, (S, B, n, c, D)."""
        dtype = w["W_cell"].dtype

        def stacked(value: Tensor) -> Tensor:
            return value.view(stack, len(value) // stack, *value.shape[1:]).to(dtype)

        z, rank, there, columns, levels = table[:5]
        cells = product(stacked(self.waves(z, rank, there)), w["W_cell"])
        phases = columns @ self.tags
        about = torch.cat((columns, phases.sin(), phases.cos(), levels), -1)
        cells = cells + product(stacked(about), w["W_column"])[:, :, None]
        if self.config.labels == "numbers":
            codes = self.waves(codes[..., 0], codes[..., 1], shown)
        labels = product(stacked(codes), w["W_label"]) + wide(w["b_label"], 4)
        labels = torch.where(shown.unflatten(0, (stack, -1))[..., None], labels, wide(w["b_unknown"], 4))
        if self.config.guess:
            labels = labels + product(stacked(self.guess_waves(table.guess)), w["W_guess"])
        free = w["b_free"][:, None, None].expand(*labels.shape[:3], -1, -1)
        return torch.cat((cells, labels[..., None, :], free), 3)

    def waves(self, z: Tensor, rank: Tensor, there: Tensor) -> Tensor:
        """Inputs of a cell, (..., INPUTS): z-score and rank, sines and cosines of both, and whether it is missing."""
        phases = torch.cat((z[..., None] * self.waves_z, rank[..., None] * self.waves_rank), -1)
        known = torch.cat((torch.stack((z, rank), -1), phases.sin(), phases.cos()), -1)
        flags = torch.stack((there, ~there), -1).to(z.dtype)
        return torch.cat((torch.where(there[..., None], known, 0.0), flags), -1)

    def guess_waves(self, guess: Tensor) -> Tensor:
        """Guesses, how far off they are, and of numbers sines and cosines of the mixture."""
        if self.config.labels == "classes":
            return guess
        phases = guess[..., :1] * self.waves_z
        return torch.cat((guess, phases.sin(), phases.cos()), -1)

    def to_rows(self, h: Tensor, w: Weights) -> Tensor:
        """One token a row, (S, B, n, E), from that of the label and the free ones, (S, B, n, 1 + free, D)."""
        return product(normed(h.flatten(3), w["norm_cell"]), w["W_row"])

    def read_out(self, r: Tensor, w: Weights) -> Tensor:
        return product(normed(r, w["norm_final"]), w["W_U"]) + wide(w["b_U"], 4)

    # -------------------------------------------------------------------------------------------------------- answers

    @torch.no_grad()
    def answer(self, x: Tensor, y: Tensor, classes: int | None = None) -> NumberAnswer | ClassAnswer:
        """What follows for rows without a label, from the rows with one. For a stack of one.

        Rows are read in parts, so memory does not grow with the number of queries.

        Args:
            x: (B, n, d'): any number of columns. NaN is missing.
            y: (B, k), or (B, k, q) for vectors of q numbers: labels of the first k rows, 1 <= k < n. The answer is for
                the others.
            classes: how many classes there are; by default the largest label and one.
        """
        self._single("answer")
        self._check_table(x, y)
        classes = self._check_labels(y, classes)
        vector = y.shape[2:]
        x, y = folded(x, y) if vector else (x, y)
        k, columns = y.shape[1], x.shape[2] + 1 + self.config.free
        prompts = max(1, MOST_CELLS // (k * columns))
        parts = [self._answers(*both) for both in zip(x.split(prompts), y.split(prompts), strict=True)]
        if self.config.labels == "classes":
            return ClassAnswer(torch.cat([part[0][..., :classes] for part in parts]))
        chances, *about = (torch.cat(each) for each in zip(*parts, strict=True))
        if vector:
            chances, *about = (each.unflatten(0, (-1, *vector)) for each in (chances, *about))
            chances = chances.transpose(1, 2)
        return NumberAnswer(chances, *about)

    def _answers(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """``_answer`` for many queries, in parts."""
        known, asked = x[:, : y.shape[1]], x[:, y.shape[1] :].split(MOST_ROWS, 1)
        parts = [self._answer(torch.cat((known, some), 1), y) for some in asked]
        return (torch.cat([part[0] for part in parts], 1), *parts[0][1:])

    def _answer(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Chances (B, m, outputs), and of numbers the location and scale of the demonstrations' labels."""
        B, k = y.shape
        shown = (torch.arange(x.shape[1], device=x.device) < k).expand(B, -1)
        table, codes, about = self.read(x, F.pad(y, (0, x.shape[1] - k)), shown, k)
        present = table.present.any(0)  # columns that no prompt has are left out
        cells = {name: getattr(table, name)[..., present] for name in ("z", "rank", "there", "present")}
        table = table._replace(**cells, columns=table.columns[:, present], levels=table.levels[:, present])
        log_k, full = shown.sum(1).div(NORMAL).log(), bool(table.present.all())

        def logits(part: slice, contexts: Sequence[Context] | None) -> tuple[Tensor, list[Context]]:
            some = table._replace(**{name: getattr(table, name)[:, part] for name in ("z", "rank", "there", "guess")})
            how: dict[str, Any] = {"contexts": contexts, "keeps": contexts is None, "log_k": log_k, "full": full}
            return self.network(some, codes[:, part], shown[:, part], weights, **how)

        weights: dict[str, Tensor] = dict(self.named_parameters())
        more = (0, -self.config.outputs % 16)  # in a narrow product the rounding of a row depends on its place
        weights |= {name: F.pad(weights[name], more) for name in ("W_U", "b_U")}
        _, contexts = logits(slice(0, k), None)
        most = max(1, MOST_CELLS // (B * (table.z.shape[2] + 1 + self.config.free) * BLOCK)) * BLOCK
        parts = [logits(slice(at, at + most), contexts)[0][0] for at in range(k, x.shape[1], most)]
        found = torch.cat(parts, 1).float()[..., : self.config.outputs]
        return (found.softmax(-1), *about) if self.config.labels == "numbers" else (by_name(found, codes, *about),)

    def forward(self, x: Tensor, y: Tensor, weights: Weights | None = None, keep: Keep | None = None) -> Tensor:
        """The label of the last row, from the others: (S, B, 1), or (S, B, 1, q). Of numbers the mean, of classes the
        most probable. Activations where labels are vectors are (S, B, q, ...).
        """
        if y.ndim == 4:
            apart = (-1, y.shape[3])

            def inside(name: str, value: Tensor) -> Tensor:
                return value if keep is None else keep(name, value.unflatten(1, apart)).flatten(1, 2)

            found: Tensor = self(*folded(x, y), weights, inside).unflatten(1, apart).mT
            return found
        S, B, n, _ = x.shape
        x, y = x.flatten(0, 1), y.flatten(0, 1)
        if n == 1:
            return torch.zeros(S, B, 1, dtype=y.dtype, device=y.device)
        shown = (torch.arange(n, device=x.device) < n - 1).expand(S * B, -1)
        table, codes, about = self.read(x, y, shown, n - 1)
        logits, _ = self.network(table, codes, shown, weights, S, keys=n - 1, keep=keep)
        last = logits[:, :, -1:].float().flatten(0, 1)
        if self.config.labels == "classes":
            labels = by_name(last, codes, *about).argmax(-1).to(y.dtype)
        else:
            labels = NumberAnswer(last.softmax(-1), *about).mean
        return labels.view(S, B, 1)

    def _check_table(self, x: Tensor, y: Tensor) -> None:
        for value in (x, y):
            if not isinstance(value, Tensor) or not value.is_floating_point():
                got = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
                raise InputError("tables are tensors of numbers, x (B, n, d) and y (B, k)", got=got)
        if self.config.labels == "classes":
            require_one_number("a learner of classes", y)
        good = x.ndim == 3 and y.ndim in (2, 3) and len(x) == len(y) and x.numel() and y.numel()
        if not good or not 1 <= y.shape[1] < x.shape[1]:
            got, allowed = f"{tuple(x.shape)} and {tuple(y.shape)}", "1 <= k < n, and a column at least"
            raise InputError("tables are x (B, n, d) and y (B, k) or (B, k, q)", got=got, allowed=allowed)
        if not bool(y.isfinite().all()):
            raise InputError("a label is missing", got="NaN or infinity", allowed="numbers")

    def _check_labels(self, y: Tensor, classes: int | None) -> int:
        """The number of classes."""
        if self.config.labels == "numbers":
            if classes is not None:
                raise InputError("this learner answers with numbers", got=f"classes = {classes}", allowed="none")
            return 0
        most = int(y.max()) + 1
        classes = most if classes is None else integer("classes", classes)
        whole = bool((y == y.round()).all()) and bool((y >= 0).all())
        if not whole or not most <= classes <= MOST_CLASSES:
            got = f"{classes} classes, labels from {float(y.min()):g} to {float(y.max()):g}"
            allowed = f"whole numbers 0, 1, ... below the number of classes, at most {MOST_CLASSES}"
            raise InputError("these are no labels of classes", got=got, allowed=allowed)
        return classes


# ---------------------------------------------------------------------------------------------------------------- parts


def by_name(logits: Tensor, codes: Tensor, names: Tensor) -> Tensor:
    """Chances of the classes by their names, from logits (N, n, 10) in the order of the classes."""
    chances = logits.masked_fill(~(codes.sum(1) > 0)[:, None], -torch.inf).softmax(-1)
    return chances.gather(-1, names.argsort(1)[:, None].expand_as(chances))


def tag_waves() -> Tensor:
    """(STATISTICS, WAVES_TAG): random directions, from slow to fast."""
    drawn = CounterRNG.of(0, "tags of columns").normal(torch.arange(1), features.STATISTICS, WAVES_TAG)[0]
    return drawn * torch.logspace(0.0, 1.5, WAVES_TAG)
