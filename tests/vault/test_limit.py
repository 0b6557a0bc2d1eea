"""Without noise, what leaves the vault is the textbook sum, to the error of the integer grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from vault_helpers import (
    CLIP,
    DOMAINS,
    NAMES,
    RAW,
    REGRESSORS,
    RELATIONS,
    Study,
    answers,
    joint_scores,
    mechanisms,
    needs_groups,
    random_rows,
    raw_mechanisms,
    rescaled,
    second_slopes,
    study,
    table,
    turned,
)

from privcausal import testing
from privcausal.features.design import Rows
from privcausal.typing import Matrix, Vector
from privcausal.vault.queries.moments import RowProducts

N = 300


class Clean:
    """The rows that count, cleaned by hand: all numbers finite, everything inside its bounds."""

    def __init__(self, s: Study, rows: list[Any]) -> None:
        frame = table(rows)
        numbers = frame[["Y", "T", "X1", "X2", "P"]].to_numpy()
        keep = np.isfinite(numbers).all(axis=1) & frame["T"].isin([0.0, 1.0]).to_numpy()
        keep &= frame["G"].notna().to_numpy() & frame["B"].isin(["no", "yes"]).to_numpy()
        frame = frame[keep]
        inside = {
            name: np.clip(frame[name].to_numpy(), *DOMAINS[name]) for name in ("Y", "X1", "X2", "P")
        }
        self.n = len(frame)
        self.y, self.t = inside["Y"], frame["T"].to_numpy()
        codes = {"a": 0, "b": 1, "c": 2}
        self.levels = np.array([codes.get(label, -1) for label in frame["G"]], np.int64)
        self.yes = (frame["B"] == "yes").to_numpy().astype(float)
        columns = {"X1": inside["X1"], "X2": inside["X2"], "G": self.levels, "B": self.yes}
        self.frame = columns
        self.rows = Rows(columns, self.n, inside["P"])
        self.e = s.e(self.rows)
        self.mu0, self.mu1 = s.nuisance.mu0(self.rows), s.nuisance.mu1(self.rows)
        self.psi = np.where(
            self.t == 1,
            self.mu1 - self.mu0 + (self.y - self.mu1) / self.e,
            self.mu1 - self.mu0 - (self.y - self.mu0) / (1 - self.e),
        )
        phi = s.features.of(self.rows)
        self.phi = phi
        self.w = np.minimum(1.0, (s.features.cut / np.linalg.norm(phi, axis=1)) ** 2)
        indicators = [self.levels == k for k in range(3)]
        self.g = np.stack([*indicators, columns["X1"] >= 5, self.yes == 1], axis=1).astype(float)

    def a(self, *, slopes: bool) -> Matrix:
        """(1, z/2): X1 and X2 on [-1, 1], two indicators of G and one of B: four factors."""
        one = np.ones((self.n, 1))
        if not slopes:
            return one
        z = [
            self.frame["X1"] / 5 - 1,
            2 * (self.frame["X2"] - 99) - 1,
            self.levels == 1,
            self.levels == 2,
            self.yes,
        ]
        return np.hstack([one, 0.5 * np.stack(z, axis=1)])


def cells(e: Vector) -> list[int]:
    """Rows cut to 0.1, in the cells between, and cut to 0.9."""
    inner = np.histogram(e[(e > 0.1) & (e < 0.9)], [0.1, 0.3, 0.5, 0.7, 0.9])[0]
    return [(e <= 0.1).sum(), *inner, (e >= 0.9).sum()]


def upper(matrix: Matrix) -> Vector:
    return matrix[np.triu_indices(len(matrix))]


def cut(values: Vector, bound: float) -> Vector:
    return np.clip(values, -bound, bound)


def outlaid(s: Study, c: Clean) -> Matrix:
    """Stretched features and products by their definition, with the weights of the shorter norm."""
    laid = rescaled(s.features)
    psi = laid.products
    assert psi is not None
    z = np.clip(c.phi / psi.scales, -2.5, 2.5)
    raw = np.stack([z[:, i] * z[:, j] for i, j in psi.pairs], axis=1)
    both = np.hstack([c.phi, raw - c.phi @ psi.lift]) * laid.stretch
    return both * np.minimum(c.w, laid.cut / np.linalg.norm(both, axis=1))[:, None]


def whitened(s: Study, c: Clean, product: Vector) -> dict[str, Vector]:
    """Sums of combinations of features, by their definition."""
    u = c.phi @ turned(s.features).turn
    weight = np.minimum(1, (turned(s.features).cut / np.linalg.norm(u, axis=1)) ** 2)
    plain, share = np.ones(len(u)), 1.5 * np.clip(c.frame["X2"] / 5.0, 0, 1)
    return {
        "gram turned": upper((u.T * weight) @ u),
        **regression_sums(s, u, c.y - 2.0, plain, 4.0, ""),
        **regression_sums(s, u, c.y - 2.0, share, 2.0, ", survey weights"),
    }


def regression_sums(
    s: Study, u: Matrix, r: Vector, survey: Vector, cut: float, name: str
) -> dict[str, Vector]:
    """Moments, squared residual moments, and outliers by sign, of rows cut at their limits."""
    v, r = u * np.sqrt(survey)[:, None], r * np.sqrt(survey)
    size = np.maximum(np.linalg.norm(v, axis=1), 1e-300)
    w = np.minimum(1, 2.0 / size)
    most = np.sqrt(9.0 - (w * size) ** 2) / 2.0
    e = np.clip(w * r, -most, most)
    z, own = np.c_[v * w[:, None], 2.0 * e], v * w[:, None]
    left = own * (e - own @ second_slopes(s))[:, None]
    left /= np.maximum(1, np.linalg.norm(left, axis=1) / cut)[:, None]
    beyond = np.clip((np.abs(r) - 1.5) / 1.5, 0, 1) * np.minimum(1, 0.8 / size)
    return {
        f"gram of a regression{name}": upper(z.T @ z),
        f"squared residual moments{name}": upper(left.T @ left),
        f"outliers{name}": np.r_[(beyond * (r > 0)) @ v, (beyond * (r < 0)) @ v],
    }


def together(s: Study, c: Clean) -> dict[str, Vector]:
    """Sums of vectors of scores, each cut by itself and the vector to norm one."""
    vector, _, _ = joint_scores(s)
    eta, odds = s.additive(4, -2.0, 6.0)(c.rows), np.where(c.t == 1, 1.0, -c.e / (1 - c.e))
    scores = [
        c.mu0 + (c.t == 0) * (c.y - c.mu0) / (1 - c.e) - 1,
        c.mu1 + (c.t == 1) * (c.y - c.mu1) / c.e - 1,
        (odds * (c.y - c.mu0) + 3 * c.t) / 0.5,
        (c.t - c.e) * (c.y - eta - 2 * (c.t - c.e)) / 0.2,
    ]
    x = np.stack([np.clip(v, -b, b) for v, b in zip(scores, vector.cuts, strict=True)], 1)
    x = x @ vector.basis.T
    x /= np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]
    masses = [
        np.where(c.t == 1, (1 - c.e) / c.e, c.e / (1 - c.e)),
        c.t / 0.5,
        np.where(c.t == 1, 1 - c.e, c.e) ** 2 / 0.2,
    ]
    squares = np.stack([x[:, i] * x[:, j] for i, j in zip(*np.triu_indices(4), strict=True)], 1)
    found = {}
    for which, g in (("mean", np.zeros((c.n, 0))), ("groups", c.g)):
        places = np.hstack([np.ones((c.n, 1)), g])
        by_group = [g.sum(axis=0), *(q @ g for q in masses[1:])]
        found[f"joint sums, {which}"] = np.concatenate(
            [(x.T @ places).ravel(), [c.n], [q.sum() for q in masses], *by_group]
        )
        found[f"joint squares, {which}"] = (places.T @ squares).ravel()
        first = x.shape[1] * places.shape[1]
        found[f"joint sums and squares, {which}"] = np.insert(
            found[f"joint sums, {which}"], first, found[f"joint squares, {which}"]
        )
    return found


def cut_scores(name: str, d: Matrix, score: Matrix, bound: float) -> dict[str, Vector]:
    """Sums of scores that are cut to a norm, and of products; and counts of the norms."""
    norm = np.linalg.norm(score, axis=1)
    x = score * np.minimum(1, 0.3 * bound / np.maximum(norm, 1e-300))[:, None]
    sizes = np.histogram(np.minimum(norm, bound), [0, 0.1, bound])[0]
    return {
        name: np.r_[x.sum(axis=0), upper(d.T @ d), upper(x.T @ x)],
        f"sizes of {name}": sizes,
    }


def slope_sums(s: Study, c: Clean) -> dict[str, Vector]:
    """Scores of partially linear models and products, by their definition."""
    eta = s.additive(4, -2.0, 6.0)(c.rows)
    found = {}
    for label, arms, cut_at in (("two arms", 1, 0.0), ("a number", 1, 0.4), ("arms", 3, 0.0)):
        e = np.stack([c.e] * arms, axis=1)
        if cut_at:
            d = np.clip(c.t[:, None] - e, -2 * cut_at, 2 * cut_at)
        else:
            d = (c.t[:, None] == np.arange(1, arms + 1)) - e / np.maximum(
                e.sum(axis=1, keepdims=True), 1
            )
        reach = cut_at or (1.0 if arms == 1 else np.sqrt(2))
        rest = (c.y - eta - d.sum(axis=1))[:, None]
        d = np.clip(d, -reach, reach)
        score = d * rest
        bound = reach * (8 + (2 * cut_at or reach) * np.sqrt(arms))
        found |= cut_scores(f"slopes of {label}", d, score, bound)
    return found | instrument_sums(s, c)


def instrument_sums(s: Study, c: Clean) -> dict[str, Vector]:
    """Scores by an instrument, which here is the treatment itself."""
    eta, taken = s.additive(4, -2.0, 6.0)(c.rows), s.additive(5, 0.0, 1.0)(c.rows)
    found = {}
    one, three = [c.e], [c.e, taken, c.e]
    for label, means, reach in (
        ("an instrument", one, 1.0), ("an instrument that is cut", one, 0.4),
        ("instruments", three, 1.0),
    ):  # fmt: skip
        d = np.stack([np.clip(c.t - mean, -reach, reach) for mean in means], axis=1)
        moved = np.clip(c.t - taken, -0.9, 0.9)
        score = np.hstack([d * (c.y - eta - 0.7 * moved)[:, None], d * (3 * moved)[:, None]])
        bound = np.sqrt(len(means)) * reach * np.hypot(8 + 0.7 * 0.9, 3 * 0.9)
        found |= cut_scores(f"slopes by {label}", d, score, bound)
    return found


def half_open(values: Vector, edges: Vector) -> Vector:
    """Counts in cells that are closed above, but for the last, which holds its lower border."""
    at = np.where(values >= edges[-1], len(edges), np.searchsorted(edges, values, side="left"))
    return np.bincount(at, minlength=len(edges) + 1)


def by_arm(values: Vector, edges: Vector, arms: list[Vector], factors: tuple[float, ...]) -> Vector:
    """Counts of each arm's values times its factor."""
    scaled = [values[arm] * factor for arm, factor in zip(arms, factors, strict=True)]
    return np.concatenate([half_open(own, edges) for own in scaled])


def expected(s: Study, c: Clean) -> dict[str, Vector]:
    """Textbook sums by the name of the mechanism."""
    arms = [c.t == 0, c.t == 1]

    def gram(weight: Vector) -> Vector:
        return upper((c.phi.T * weight) @ c.phi)

    def cross(target: Vector, rows: Any = slice(None)) -> Vector:
        return c.phi[rows].T @ (c.w * target)[rows]

    imputed = np.where(c.t == 1, c.y - c.mu0, c.mu1 - c.y)
    eta = s.additive(4, -2.0, 6.0)(c.rows)
    product = (c.t - c.e) * (c.y - eta)
    largest = 0.9 * 8

    def counts(cells: int) -> list[Vector]:
        ends = {"X1": np.linspace(0, 10, cells + 1), "X2": np.linspace(99, 100, cells + 1)}
        return [np.histogram(c.frame[name], borders)[0] for name, borders in ends.items()]

    histograms = [
        *counts(16),
        [(c.levels == code).sum() for code in (0, 1, 2, -1)],
        [(c.yes == 0).sum(), (c.yes == 1).sum()],
    ]
    edges = 80.0 * 0.5 ** np.arange(8)[::-1]
    found = {
        "gram": gram(c.w),
        "gram with factor": gram(c.w * (c.t - c.e) ** 2),
        "cross treatment": cross(c.t - 0.5),
        "cross of an arm": cross(arms[0] - 0.5),
        "cross outcome": cross(c.y - 2.0),
        "cross by arm": np.concatenate([cross(imputed, arm) for arm in arms]),
        "cross cut": cross(cut(product, 0.25 * largest)),
        "cross stretched": outlaid(s, c).T @ (c.y - 2.0),
        **whitened(s, c, product),
        "marginals": np.concatenate(histograms),
        "ranges": np.concatenate(counts(64)),
        "count": np.array([c.n]),
        "sizes": np.histogram(np.minimum(np.abs(c.psi), 80.0), np.r_[0, edges])[0],
        "arm histogram": np.concatenate([cells(c.e[arm]) for arm in arms]),
        "sizes by arm": by_arm(np.abs(c.psi), edges[:-1], arms, (1.0, 0.25)),
    }
    signed = np.r_[-edges[:-1][::-1], 0.0, edges[:-1]]
    found["scores by arm and sign"] = by_arm(c.psi, signed, arms, (1.0, 0.25))
    # of the control arm against the other, as of a treatment
    sizes = np.abs(c.mu1 + arms[0] * (c.y - c.mu1) / c.e - 1.0)
    found["sizes of an arm"] = by_arm(sizes, edges[:-1], arms[::-1], (0.5, 1.0))
    balance = np.where(c.t == 1, (1 - c.e) / c.e, c.e / (1 - c.e))
    for which, (slopes, groups) in REGRESSORS.items():
        a = c.a(slopes=slopes)
        g = c.g if groups else np.zeros((c.n, 0))
        x, x2 = cut(c.psi, 40.0), cut(c.psi, 40.0) ** 2
        outer = upper(a.T @ a)
        sizes = g.sum(axis=0)
        found[f"sums, {which}"] = np.r_[x @ a, x @ g, outer, balance.sum(), sizes]
        own = cut(imputed, 40.0) @ a[:, 1:]
        rest = x @ g, outer, balance.sum(), sizes
        found[f"sums with slope scores, {which}"] = np.r_[x.sum(), own, *rest]
        both = x @ a, x @ g, x2.sum(), x2 @ g, outer
        found[f"sums and squares, {which}"] = np.concatenate(
            [np.atleast_1d(k) for k in (*both, balance.sum(), sizes)]
        )
        x, x2 = cut(c.psi - 3, 40.0), cut(c.psi - 3, 40.0) ** 2
        own = cut(imputed - 3, 40.0) @ a[:, 1:]
        alone = x.sum(), own, x @ g, x2.sum(), x2 @ g, outer, sizes
        found[f"sums and squares alone, {which}"] = np.concatenate(
            [np.atleast_1d(k) for k in alone]
        )
        x2 = cut(c.psi, 40.0) ** 2
        x = cut(imputed, 8.0)
        found[f"sums of the treated, {which}"] = np.r_[x @ a, x @ g, outer, c.t.sum(), sizes]
        eta = s.additive(4, -2.0, 6.0)(c.rows)
        odds = np.where(c.t == 1, 1.0, -c.e / (1 - c.e))
        for name, x, mass in (
            ("on the treated", cut((odds * (c.y - c.mu0) + 3 * c.t) / 0.5, 15.0), c.t / 0.5),
            (
                "in the overlap",
                cut((c.t - c.e) * (c.y - eta - 2 * (c.t - c.e)) / 0.2, 0.45 * (8 + 1.8) / 0.2),
                np.where(c.t == 1, 1 - c.e, c.e) ** 2 / 0.2,
            ),
        ):
            found[f"sums {name}, {which}"] = np.r_[x @ a, x @ g, outer, mass.sum(), mass @ g]
        found[f"squares, {which}"] = np.r_[x2.sum(), x2 @ g]
        meat = upper((a.T * x2) @ a)
        found[f"squares with meat, {which}"] = np.r_[x2.sum(), x2 @ g, meat]
        if not groups:
            own = np.where(c.t == 1, c.e, 1 - c.e)
            weighted = [(a[arm] / own[arm, None]).sum(axis=0) for arm in arms]
            plain = [a[arm].sum(axis=0) for arm in arms]
            found[f"arm means, {which}"] = np.r_[plain[0], weighted[0], plain[1], weighted[1]]
    found |= together(s, c) | slope_sums(s, c)
    found["joint sizes"] = np.concatenate([found["sizes by arm"], found["arm histogram"]])
    outcomes = [cut(c.y[arms[0]] - 2.0, 4.0), cut(c.y[arms[1]] - 2.5, 2.5)]
    places = [np.hstack([np.ones((arm.sum(), 1)), c.g[arm]]) for arm in arms]
    kinds = [[y, np.ones_like(y), y**2] for y in outcomes]
    sums = [[kind @ p for kind in k] for k, p in zip(kinds, places, strict=True)]
    found["arm sums, groups"] = np.concatenate([np.concatenate(k) for k in sums])
    found["arm sums"] = np.array([kind[0] for k in sums for kind in k])
    found["arm sums of two values"] = np.array([kind[0] for k in sums for kind in k[:2]])
    return found


@pytest.fixture(scope="module")
def made() -> tuple[Study, list[Any], Clean]:
    s, rows = study("substitute"), random_rows(N, 11)
    return s, rows, Clean(s, rows)


ELSEWHERE = {*raw_mechanisms(), "survival counts"}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ELSEWHERE])
def test_no_noise_gives_the_textbook_sums(name: str, made: tuple[Study, list[Any], Clean]) -> None:
    s, rows, clean = made
    assert 0.5 * N < clean.n < N
    mechanism = mechanisms(s)[name]
    with testing.zero_noise():
        vault = s.vault(table(rows), s.plan(["s"]), groups=needs_groups(mechanism))
        out = vault.release("s", mechanism)
    truth = expected(s, clean)[name]
    # each row errs by about a unit of a factor's grid in each coordinate
    grain = mechanism.units
    if isinstance(mechanism, RowProducts):
        grain = 2 * max(s.features.cut, mechanism.limits[1]) * np.sqrt(mechanism.units)
    elif name.startswith("cross"):
        grain = mechanism.units * 2.0**17
    allowed = np.zeros_like(grain) if np.all(mechanism.units == 1) else clean.n * grain * 1.01
    assert np.all(np.abs(out.value - truth) <= allowed + 1e-9 * np.abs(truth))
    assert np.all(np.abs(truth) < 1e12 * mechanism.units)  # no test of zero against zero
    assert np.abs(truth).max() > 100 * allowed.max()
    assert not out.noise_sd.any()


@pytest.mark.parametrize("name", list(raw_mechanisms()))
def test_no_noise_gives_the_raw_histograms(name: str) -> None:
    s = study("substitute")
    rows = random_rows(N, 12)
    mechanism: Any = raw_mechanisms()[name]
    with testing.zero_noise():
        out = s.vault(table(rows), s.plan(["s"])).release("s", mechanism)
    if name == "magnitudes":
        edges = [mechanism.edges] * 3
        inner = 2.0**40
    else:
        edges = [np.linspace(r.lo, r.hi, 65) for r in mechanism.ranges]
        inner = np.inf
    frame = table(rows)
    truth = []
    for column, borders in zip(RAW, edges, strict=True):
        values = frame[column].to_numpy()
        if mechanism.weight is not None:
            values = values[frame[mechanism.weight].to_numpy() > 0]
        values = values[np.isfinite(values)]
        values = np.clip(values, max(borders[0], -inner), min(borders[-1], inner))
        if name == "magnitudes":
            values = np.where(np.abs(values) < 2.0**-20, 0.0, values)
        truth.append(np.histogram(values, borders)[0])
    assert out.value.tolist() == np.concatenate(truth).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_integers_do_not_depend_on_batches_or_order(relation: str, limits: Any) -> None:
    s, rows = study(relation), random_rows(37, 13)
    first = answers(s, table(rows))
    order = np.random.default_rng(0).permutation(len(rows))
    mixed, turned_round = [rows[i] for i in order], rows[::-1]
    for batch, own in ((1, rows), (7, rows), (37, mixed), (16, turned_round)):
        with limits(BATCH=batch):
            again = answers(s, table(own))
        for name, found in first.items():
            assert np.array_equal(found.exact, again[name].exact), (name, batch)


@pytest.mark.slow
def test_integers_do_not_depend_on_what_is_kept_between_passes(limits: Any) -> None:
    s, data = study("substitute"), table(random_rows(50, 14))
    kept = answers(s, data)
    with limits(KEEP_ROWS=0, KEEP_HELD=0):
        again = answers(s, data)
    assert all(np.array_equal(kept[name].exact, again[name].exact) for name in kept)


@pytest.mark.slow
def test_rows_with_a_missing_value_add_nothing() -> None:
    """Also where a feature is not finite; and nothing else is dropped."""
    s = study("substitute")
    whole = answers(s, table(random_rows(20, 15)))
    row: Any = {"Y": 1.0, "T": 1.0, "X1": 5.0, "X2": 99.5, "G": "b", "B": "yes", "P": 0.5}
    spoilt = [row | {name: np.nan} for name in ("Y", "T", "X1", "X2", "P")]
    spoilt += [row | {name: None} for name in ("G", "B")]
    spoilt += [row | {"T": 0.5}, row | {"B": "unknown"}]
    more = answers(s, table([*random_rows(20, 15), *spoilt]))
    for name in mechanisms(s):
        assert np.array_equal(whole[name].exact, more[name].exact), name
    counted = answers(s, table([*random_rows(20, 15), row | {"G": "unknown"}]))
    assert counted["count"].exact[0] == whole["count"].exact[0] + 1


def test_the_clip_of_the_public_functions_is_reached(made: tuple[Study, list[Any], Clean]) -> None:
    """The functions of these tests are extreme enough to tell a wrong bound from a right one."""
    _, _, clean = made
    assert clean.e.min() == pytest.approx(CLIP)
    assert clean.e.max() == pytest.approx(1 - CLIP)
    assert np.abs(clean.psi).max() > 40.0
