"""A second forward pass of a saved model, in numpy. It reads nothing but the folder and imports nothing of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf, expit, softmax

SIGMA = {
    "gelu": lambda z: z * (1 + erf(z / np.sqrt(2))) / 2,
    "tanh": np.tanh,
    "sigmoid": expit,
    "softplus": lambda z: np.logaddexp(0, z),
    "silu": lambda z: z * expit(z),
    "cos": np.cos,
    "relu": lambda z: np.maximum(z, 0),
}
H = {"identity": lambda z: z, "relu": lambda z: np.maximum(z, 0), "exp": np.exp}


def layer_norm(h: np.ndarray, gain: float | None) -> np.ndarray:
    if gain is None:
        return h
    return gain * (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)


def kernel_attention(h: np.ndarray, W: dict[str, np.ndarray], settings: dict) -> np.ndarray:
    """003: heads sum, or take the softmax, over the tokens with t = 1; scores of a head are multiplied."""
    out, shown = h.copy(), h[:, settings["t"]] == 1
    scores = iter((h @ Q.T) @ (h @ K.T).T for Q, K in zip(W["W_Q"], W["W_K"], strict=True))
    for names, W_V, W_O in zip(settings["heads"], W["W_V"], W["W_O"], strict=True):
        if names == ["softmax"]:
            pattern = softmax(np.where(shown, next(scores), -np.inf), axis=1)
        else:
            pattern = shown * np.prod([H[name](next(scores)) for name in names], axis=0)
        out += pattern @ h @ W_V.T @ W_O.T
    return out


def gpt(h: np.ndarray, layer: dict, W: dict[str, np.ndarray]) -> np.ndarray:
    """Softmax attention, or an MLP (exact GeLU, ReLU), behind a LayerNorm or none."""
    g = layer_norm(h, layer["settings"]["gain"])
    if layer["kind"] == "mlp":
        z = g @ W["W_1"][0].T + W["b_1"][0].T
        return h + SIGMA[layer["settings"]["activation"]](z) @ W["W_2"][0].T
    later = np.triu(np.ones((len(h), len(h)), dtype=bool), 1) & layer["settings"]["causal"]
    out = h.copy()
    for W_Q, W_K, W_V, W_O in zip(W["W_Q"], W["W_K"], W["W_V"], W["W_O"], strict=True):
        pattern = softmax(np.where(later, -np.inf, (g @ W_Q.T) @ (g @ W_K.T).T), axis=1)
        out += pattern @ (g @ W_V.T) @ W_O.T
    return out


def forward(folder: Path, lanes: dict[str, np.ndarray]) -> np.ndarray:
    """lanes: name -> (T, ...) or (...) if equal in all tokens; missing lanes are zero. Returns the stream (T, D)."""
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "weights.safetensors")
    tokens = len(lanes["x"])
    D = sum(int(np.prod(lane["shape"])) for lane in config["layout"])
    h = np.zeros((tokens, D))
    for lane in config["layout"]:
        size = int(np.prod(lane["shape"]))
        start = np.full(size, lane.get("fill", 0.0))
        h[:, lane["offset"] : lane["offset"] + size] = np.reshape(lanes.get(lane["name"], start), (-1, size))

    def matrices(prefix: str, layer: dict) -> dict[str, np.ndarray]:
        dense = {name: np.zeros(shape) for name, shape in layer["shapes"].items()}
        for name, full in dense.items():
            place = layer.get("stored", {}).get(name, f"{prefix}.{name}")
            full[tuple(tensors[f"{place}.index"])] = tensors[f"{place}.value"]
        return dense

    def apply(h: np.ndarray, layer: dict, W: dict[str, np.ndarray]) -> np.ndarray:
        if config["options"]["target"] == "kernel":
            return kernel_attention(h, W, layer["settings"])
        if config["options"]["target"] in ("gpt", "softmax"):
            return gpt(h, layer, W)
        phi = SIGMA[layer["settings"]["sigma"]] if config["options"]["target"] == "sigma" else SIGMA["relu"]
        if layer["kind"] == "mlp":
            return h + phi(h @ W["W_1"][0].T) @ W["W_2"][0].T
        out = h.copy()
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
