"""Networks learned by differentially private stochastic gradient descent (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcausal.spec.features import Design
from privcausal.spec.networks import WIDTH, inputs, size, split
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import TWO_FACTOR, grid_scale
from privcausal.vault.split import coins
from privcausal.vault.transforms.scores import Transform

UNIT = float(1 << TWO_FACTOR)
_PUBLIC_SEED = 20_250_601  # starting weights: public, and no noise

AddNoise = Callable[[Integers, float, float], Integers]
"""(exact sums, sensitivity, noise sd), all in grid steps, to noisy sums."""


@dataclass(frozen=True, eq=False)
class PrivateNetwork:
    """Weights of a network with one layer of 32 rectified units after `steps` of Adam.

    Attributes
    ----------
    target : Transform
        What is learned, in [-bound, bound]; a treatment (bound 1/2) by logistic loss, with `share`,
        anything else divided by its bound by squared loss.
    with_arm : bool
        The treatment is an input.
    rate : float
        Public probability with which each row enters a step.
    multiplier : float
        Noise sd over the clipping norm.

    Privacy
    -------
    In each step every row of the part enters by a coin of its own, of public probability `rate`;
    its gradient (by opacus, for each row alone) is cut to norm 1, put on an integer grid where its
    norm is at most 2^16, and the sum leaves with discrete Gaussian noise of sd multiplier 2^16. A
    row that is incomplete adds zero. What is done with the noisy sums, Adam and later steps, is
    post-processing. This is the Poisson-subsampled Gaussian mechanism, composed `steps` times,
    whose Renyi divergences for a row added or removed opacus bounds. (Gaussian noise rounded to the
    grid would be it exactly; the discrete Gaussian is within total variation exp(-2 pi^2 s^2) of
    that in each coordinate, for s > 10^4 grid steps: nothing.) Replacing a row is removing one and
    adding one: from (eps0, delta0) follows (2 eps0, (1 + e^eps0) delta0), and `multiplier` is for
    an eps0 and a delta0 that are small enough (`learners.networks`). The number of rows enters
    `rate` and is public under substitution; a table with one row less has the same rate.
    """

    design: Design
    target: Transform
    share: bool
    with_arm: bool
    steps: int
    rate: float
    expected: float
    learning_rate: float
    multiplier: float
    what: str

    name = "DP-SGD"

    @property
    def query(self) -> str:
        return f"network of the {self.what}"

    @property
    def width(self) -> int:
        return len(self.design) + self.with_arm

    def sensitivity(self, neighbors: Neighbors) -> float:
        """Of one step's sum, in grid steps, for the same coins."""
        return (2.0 if neighbors == "substitute" else 1.0) * UNIT

    def train(
        self,
        batches: Sequence[Batch],
        neighbors: Neighbors,
        entropy: Callable[[], int],
        add_noise: AddNoise,
    ) -> Vector:
        """Weights after all steps, shape (p,)."""
        z, y, complete = self._stacked(batches)
        learner = _Learner(self.width, self.share, self.learning_rate)
        scale = grid_scale(TWO_FACTOR, np.sqrt(size(self.width)) / 2)
        generator = coins(entropy())
        for _ in range(self.steps):
            at = np.flatnonzero((generator.random(len(z)) < self.rate) & complete)
            grid = np.rint(learner.gradients(z[at], y[at]) * scale).astype(np.int64)
            fine = (grid.astype(np.float64) ** 2).sum(axis=1) <= UNIT**2
            noisy = add_noise(
                grid[fine].sum(axis=0), self.sensitivity(neighbors), self.multiplier * UNIT
            )
            learner.step(noisy / (scale * self.expected))
        return learner.weights

    def _stacked(self, batches: Sequence[Batch]) -> tuple[Matrix, Vector, Any]:
        z = [inputs(b.rows, self.design, b.t if self.with_arm else None) for b in batches]
        y = [np.clip(self.target(b) / self.target.bound, -1, 1) for b in batches]
        return np.concatenate(z), np.concatenate(y), np.concatenate([b.complete for b in batches])


class _Learner:
    """A torch module with gradients of each row by opacus, and Adam on what it is given.

    Hidden units are divided by the root of their number, or else most gradients would be longer
    than one, and cutting them all to one length makes of a probability of 0.55 one of 0.8.
    """

    def __init__(self, width: int, share: bool, learning_rate: float) -> None:
        import torch
        from opacus import GradSampleModule

        class _Shrunken(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return torch.relu(x) * WIDTH**-0.5

        generator = torch.Generator().manual_seed(_PUBLIC_SEED)
        start = torch.randn(size(width), generator=generator, dtype=torch.float64).numpy()
        w1, b1, w2, b2 = split(start, width)
        inner = torch.nn.Sequential(
            torch.nn.Linear(width, len(b1), dtype=torch.float64),
            _Shrunken(),
            torch.nn.Linear(len(b1), 1, dtype=torch.float64),
        )
        values = (w1 * np.sqrt(2.0 / max(width, 1)), 0 * b1, w2[None], [0 * b2])
        for parameter, value in zip(inner.parameters(), values, strict=True):
            parameter.data = torch.as_tensor(np.array(value), dtype=torch.float64)
        self._module = GradSampleModule(inner, loss_reduction="sum")
        self._optimiser = torch.optim.Adam(inner.parameters(), lr=learning_rate)
        self._share = share

    def gradients(self, z: Matrix, y: Vector) -> Matrix:
        """Each row's gradient, cut to norm one, shape (n, p)."""
        import torch

        parameters = list(self._module.parameters())
        if not len(z):
            return np.zeros((0, sum(p.numel() for p in parameters)))
        self._module.zero_grad()
        # inputs that need a gradient keep opacus' hooks quiet
        found = self._module(torch.from_numpy(z.copy()).requires_grad_(True)).squeeze(1)
        goal = torch.from_numpy(y.copy())
        loss: Any
        if self._share:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                found, (goal + 1) / 2, reduction="sum"
            )
        else:
            loss = 0.5 * ((found - goal) ** 2).sum()
        loss.backward()
        rows = np.concatenate(
            [p.grad_sample.reshape(len(z), -1).numpy() for p in parameters], axis=1
        )
        rows = np.nan_to_num(rows)
        norm = np.linalg.norm(rows, axis=1)
        return np.asarray(rows / np.maximum(norm, 1.0)[:, None])

    def step(self, gradient: Vector) -> None:
        import torch

        at = 0
        for parameter in self._module.parameters():
            part = gradient[at : at + parameter.numel()]
            at += parameter.numel()
            parameter.grad = torch.from_numpy(part.copy()).reshape(parameter.shape)
        self._optimiser.step()

    @property
    def weights(self) -> Vector:
        """As of a network without the factor."""
        found = [p.detach().numpy().ravel() for p in self._module.parameters()]
        found[2] = found[2] * WIDTH**-0.5
        return np.asarray(np.concatenate(found), np.float64)
