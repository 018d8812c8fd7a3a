"""The encoder half of T5 (Raffel et al., 2020): token ids -> hidden states."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from .config import T5Config

UNUSED = r"encoder\.embed_tokens\.weight"
"""What checkpoints have besides: a second copy of ``shared.weight``."""

_LAYER = {  # part of a layer -> the tensors of the checkpoint that it is, one below the other
    "attention_norm.weight": ("0.layer_norm",),
    "projected.weight": ("0.SelfAttention.q", "0.SelfAttention.k", "0.SelfAttention.v"),
    "attended.weight": ("0.SelfAttention.o",),
    "inner_norm.weight": ("1.layer_norm",),
    "inner.weight": ("1.DenseReluDense.wi",),
    "outer.weight": ("1.DenseReluDense.wo",),
}


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each over normalised states and added to them. No biases."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        width = config.n_heads * config.head
        self._n_heads = config.n_heads
        self.attention_norm = nn.RMSNorm(config.hidden, config.epsilon)
        self.projected = nn.Linear(config.hidden, 3 * width, bias=False)  # query, key and value in one product
        self.attended = nn.Linear(width, config.hidden, bias=False)
        self.inner_norm = nn.RMSNorm(config.hidden, config.epsilon)
        self.inner = nn.Linear(config.hidden, config.inner, bias=False)
        self.outer = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return the next hidden states, (n, tokens, hidden) like these; ``bias`` is added to the products of queries and keys."""
        query, key, value = self.projected(self.attention_norm(hidden)).unflatten(-1, (3, self._n_heads, -1)).permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)  # (n, heads, tokens, head)
        hidden = hidden + self.attended(attention.transpose(1, 2).flatten(2))
        added: torch.Tensor = hidden + self.outer(functional.relu(self.inner(self.inner_norm(hidden))))
        return added


class T5(nn.Module):
    """The network. A token's position counts only relative to another's, as a bias to each head's attention in every layer."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self._config = config
        self.tokens = nn.Embedding(config.n_tokens, config.hidden)
        self.distances = nn.Embedding(config.n_buckets, config.n_heads)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.hidden, config.epsilon)

    def forward(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the last hidden states.

        Args:
            ids: tokens, (n, tokens).
            types: not known to T5.
            positions: not known to T5.
            mask: False for padding, (n, tokens); None: there is none.
        """
        hidden: torch.Tensor = self.tokens(ids)
        bias = self._bias(ids.shape[1], ids.device)
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None, None, :], -math.inf)
        for layer in self.layers:
            hidden = layer(hidden, bias)
        normed: torch.Tensor = self.norm(hidden)
        return normed

    def _bias(self, n_tokens: int, device: torch.device) -> torch.Tensor:
        """Return what is added for each head, token and token looked at, (1, heads, tokens, tokens)."""
        position = torch.arange(n_tokens, device=device)
        bucket = buckets(position[None, :] - position[:, None], self._config.n_buckets, self._config.max_distance)
        biases: torch.Tensor = self.distances(bucket)
        return biases.permute(2, 0, 1).unsqueeze(0)

    @staticmethod
    def sources(n_layers: int) -> dict[str, tuple[str, ...]]:
        """Return which tensors of a checkpoint each parameter is."""
        found: dict[str, tuple[str, ...]] = {
            "tokens.weight": ("shared.weight",),
            "distances.weight": ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",),
            "norm.weight": ("encoder.final_layer_norm.weight",),
        }
        for number in range(n_layers):
            for part, modules in _LAYER.items():
                found[f"layers.{number}.{part}"] = tuple(f"encoder.block.{number}.layer.{module}.weight" for module in modules)
        return found


def buckets(distance: torch.Tensor, n_buckets: int, max_distance: int) -> torch.Tensor:
    """Return which bias a distance between tokens has: half of them for those before, half for those behind.

    In each half the nearer distances have one each, the others share the rest in steps that grow with the logarithm, from
    ``max_distance`` on the last one. In float32, in which the network was trained: some distances lie on the edge of two steps.
    """
    half = n_buckets // 2
    n_single = half // 2
    far = distance.abs()
    steps = torch.log(far.clamp(min=1).float() / n_single) / math.log(max_distance / n_single) * (half - n_single)
    shared = (n_single + steps.long()).clamp(max=half - 1)
    return torch.where(far < n_single, far, shared) + half * (distance > 0)
