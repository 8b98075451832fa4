"""A second forward pass of a saved model, in numpy. It reads nothing but the folder and imports nothing of ours."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float64]
Layer = dict[str, Any]  # of config.json

erf = np.vectorize(math.erf, otypes=[float])


def expit(z: Array) -> Array:
    """1 / (1 + exp(-z)), without an overflow."""
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1.0 + small)


def softmax(scores: Array, axis: int) -> Array:
    e = np.exp(scores - scores.max(axis, keepdims=True))
    pattern: Array = e / e.sum(axis, keepdims=True)
    return pattern


SIGMA: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda z: z * (1 + erf(z / np.sqrt(2))) / 2,
    "tanh": np.tanh,
    "sigmoid": expit,
    "softplus": lambda z: np.logaddexp(0, z),
    "silu": lambda z: z * expit(z),
    "cos": np.cos,
    "relu": lambda z: np.maximum(z, 0),
}
H: dict[str, Callable[[Array], Array]] = {"identity": lambda z: z, "relu": lambda z: np.maximum(z, 0), "exp": np.exp}


def layer_norm(h: Array, gain: float | None) -> Array:
    if gain is None:
        return h
    normed: Array = gain * (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    return normed


def kernel_attention(h: Array, W: dict[str, Array], settings: dict[str, Any]) -> Array:
    """Heads sum, or take the softmax, over the tokens with t = 1; scores of a head are multiplied."""
    out, shown = h.copy(), h[:, settings["t"]] == 1
    scores = iter((h @ Q.T) @ (h @ K.T).T for Q, K in zip(W["W_Q"], W["W_K"], strict=True))
    for names, W_V, W_O in zip(settings["heads"], W["W_V"], W["W_O"], strict=True):
        if names == ["softmax"]:
            pattern = softmax(np.where(shown, next(scores), -np.inf), axis=1)
        else:
            pattern = shown * np.prod([H[name](next(scores)) for name in names], axis=0)
        out += pattern @ h @ W_V.T @ W_O.T
    return out


def rms_norm(h: Array, gain: float) -> Array:
    normed: Array = gain * h / np.sqrt((h * h).mean(1, keepdims=True) + 1e-6)
    return normed


def standard(h: Array, layer: Layer, W: dict[str, Array]) -> Array:
    """Softmax attention, or an MLP (exact GeLU, ReLU, or gated by SiLU), behind a LayerNorm, an RMSNorm or none."""
    norm = {"layer": layer_norm, "rms": rms_norm}[layer["settings"].get("norm", "layer")]
    g, out = norm(h, layer["settings"]["gain"]), h.copy()
    if "W_3" in W:
        out += (SIGMA["silu"](g @ W["W_1"][0].T) * (g @ W["W_3"][0].T)) @ W["W_2"][0].T
        return out
    if layer["kind"] == "mlp":
        z = g @ W["W_1"][0].T + W["b_1"][0].T
        out += SIGMA[layer["settings"]["activation"]](z) @ W["W_2"][0].T
        return out
    later = np.triu(np.ones((len(h), len(h)), dtype=bool), 1) & layer["settings"]["causal"]
    for W_Q, W_K, W_V, W_O in zip(W["W_Q"], W["W_K"], W["W_V"], W["W_O"], strict=True):
        pattern = softmax(np.where(later, -np.inf, (g @ W_Q.T) @ (g @ W_K.T).T), axis=1)
        out += pattern @ (g @ W_V.T) @ W_O.T
    return out


def forward(folder: Path, lanes: dict[str, Array]) -> Array:
    """lanes: name -> (T, ...) or (...) if equal in all tokens; missing lanes are zero. Returns the stream (T, D)."""
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "weights.safetensors")
    tokens = len(lanes["x"])
    D = sum(int(np.prod(lane["shape"])) for lane in config["layout"])
    h = np.zeros((tokens, D))
    for lane in config["layout"]:
        size = int(np.prod(lane["shape"]))
        start = np.full(size, lane.get("fill", 0.0))
        h[:, lane["offset"] : lane["offset"] + size] = np.reshape(lanes.get(lane["name"], start), (-1, size))

    def matrices(prefix: str, layer: Layer) -> dict[str, Array]:
        dense = {name: np.zeros(shape) for name, shape in layer["shapes"].items()}
        for name, full in dense.items():
            place = layer.get("stored", {}).get(name, f"{prefix}.{name}")
            full[tuple(tensors[f"{place}.index"])] = tensors[f"{place}.value"]
        return dense

    def apply(h: Array, layer: Layer, W: dict[str, Array]) -> Array:
        if config["options"]["target"] == "kernel":
            return kernel_attention(h, W, layer["settings"])
        if config["options"]["target"] in ("gpt", "softmax", "llama"):
            return standard(h, layer, W)
        phi = SIGMA[layer["settings"]["sigma"]] if config["options"]["target"] == "sigma" else SIGMA["relu"]
        out = h.copy()
        if layer["kind"] == "mlp":
            out += phi(h @ W["W_1"][0].T) @ W["W_2"][0].T
            return out
        for W_Q, W_K, W_V, W_O in zip(W["W_Q"], W["W_K"], W["W_V"], W["W_O"], strict=True):
            q, k, v = h @ W_Q.T, h @ W_K.T, h @ W_V.T @ W_O.T
            out += phi(q @ k.T) @ v / tokens if layer["kind"] == "attention" else (q * k).sum(1, keepdims=True) * v
        return out

    for i, loop in enumerate(config["body"]):
        block = [(layer, matrices(f"body.{i}.{j}", layer)) for j, layer in enumerate(loop["layers"])]
        for _ in range(loop["count"]):
            for layer, W in block:
                h = apply(h, layer, W)
    for j, layer in enumerate(config["readout"]):
        h = apply(h, layer, matrices(f"readout.{j}", layer))
    return h


def first_lanes(config: dict[str, Any], prompt: dict[str, Array]) -> dict[str, Array]:
    """The lanes of every token before the first layer, from the folder's description of prompts."""
    X, y, X_query = prompt["X"], prompt["y"], prompt["X_query"]
    n, tokens = len(X), [(X[0], 0 * y[0], 0.0, 0.0)] * config["prompt"].get("carriers", 0)
    for x, target in zip(X, y, strict=True):
        if config["prompt"]["tokens"] == "interleaved":
            tokens += [(x, 0 * target, 0.0, 0.0), (0 * x, target, 1.0, 0.0)]
        else:
            tokens.append((x, target, 1.0, 0.0))
    blanks = max(0, config["prompt"].get("length", 0) - len(tokens) - len(X_query))
    tokens += [(X[0], 0 * y[0], 0.0, 0.0)] * blanks + [(x, 0 * y[0], 0.0, 1.0) for x in X_query]
    if config["prompt"]["sink_first"]:
        tokens.insert(0, (0 * X[0], 0 * y[0], 0.0, 0.0))
    columns = (np.array(column) for column in zip(*tokens, strict=True))
    lanes = dict(zip(("x", "y", "t", "query"), columns, strict=True))
    position = np.arange(len(tokens)) / 128
    lanes |= {"one": np.ones(1), "omega": lanes["t"] * len(tokens) / n}
    lanes |= {"pos": position, "pos2": position**2, "ns": (position > 0).astype(float)}
    real = len(tokens) - config["prompt"]["sink_first"]
    lanes |= {"log_omega": np.where(lanes["t"] == 1, -np.log(n), -64.0) / 16, "log_tokens": np.array(np.log(real))}
    members = [[i for i in batch if i < n] for batch in config["prompt"].get("batches", [])]
    if members:
        number = np.where(lanes["t"] == 1, np.cumsum(lanes["t"]) - 1, -1)[:, None]
        inside = np.stack([np.isin(number, batch)[:, 0] / max(1, len(batch)) for batch in members], axis=-1)
        with np.errstate(divide="ignore"):
            lanes |= {"batch": inside * len(tokens), "log_batch": np.maximum(np.log(inside), -64.0) / 16}
    start = 0
    for lane in config["layout"]:
        if lane["name"] == "bits":
            lanes["bits"] = 2.0 * (np.arange(len(tokens))[:, None] >> np.arange(lane["shape"][0]) & 1) - 1
        if lane["role"] == "weight" and "placement" not in config["prompt"]:
            size = int(np.prod(lane["shape"]))
            lanes[lane["name"]] = prompt["w0"][start : start + size]
            start += size
    shapes = {lane["name"]: (len(tokens), int(np.prod(lane["shape"]))) for lane in config["layout"]}
    for name, size, token in config["prompt"].get("placement", []):
        lanes.setdefault(name, np.zeros(shapes[name]))[token, :size] = prompt["w0"][start : start + size]
        start += size
    first, carriers = int(config["prompt"]["sink_first"]), config["prompt"].get("carriers", 0)
    lanes["unmarked"] = np.ones(len(tokens))
    lanes["unmarked"][first : first + carriers] = 0.0
    for name, token, entry in config["prompt"].get("marks", []):
        lanes.setdefault(name, np.zeros(shapes[name]))[first + token, entry] = 1.0
    return lanes
