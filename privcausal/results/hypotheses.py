"""Tests of linear hypotheses about released estimates, under the names of statsmodels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, f, ncf, ncx2

from privcausal.errors import CapabilityError
from privcausal.inference import effects
from privcausal.inference.effects import AverageEstimate, p_value
from privcausal.prices import as_typed
from privcausal.report import tables
from privcausal.report.summary import TIDY, Printed, Summary
from privcausal.request.formula import Place
from privcausal.request.request import AVERAGES, COHORTS, OF_MEANS, RISKS
from privcausal.request.schema import Interval, level_names
from privcausal.results import frames
from privcausal.results.base import ReleasedFit
from privcausal.typing import Kind, Matrix, Vector

if TYPE_CHECKING:
    from statsmodels.stats.contrast import ContrastResults, WaldTestResults


FREE = "Computed from released numbers at no privacy cost."
ALL_CONTRASTS = (
    " The intervals cover all contrasts together (maximum of |z|); each p-value is for one "
    "contrast."
)


@dataclass(frozen=True, eq=False)
class Contrasts(Printed):
    """The result of `fit.contrast`, also under the names of a `t_test` of statsmodels.

    Attributes
    ----------
    frame : DataFrame
        One row per contrast: estimate std_error max_bias statistic p_value conf_low conf_high.
    simultaneous : bool
        Whether the limits cover all contrasts together.
    kind : str
        Kind of the fit's guarantee.
    estimates : Contrasted
        Estimates with the covariance of their noise.
    effect, sd, statistic, tvalue, pvalue : array of shape (k,)
        Columns of `frame`.
    df_denom : float or array of shape (k,)
        Degrees of freedom: infinity, or those of Student's t distribution with few clusters.
    """

    frame: pd.DataFrame
    alpha: float
    simultaneous: bool
    kind: Kind
    estimates: effects.Contrasted

    effect = property(lambda self: self.frame["estimate"].to_numpy())
    sd = property(lambda self: self.frame["std_error"].to_numpy())
    statistic = tvalue = property(lambda self: self.frame["statistic"].to_numpy())
    pvalue = property(lambda self: self.frame["p_value"].to_numpy())

    df_denom = property(lambda self: self.estimates.degrees)

    def conf_int(self, alpha: float | None = None) -> Matrix:
        """Limits at level 1 - alpha, shape (k, 2). The default is the level of `frame`."""
        level = self.alpha if alpha is None else frames.check_alpha(alpha)
        z = frames.critical(self.estimates.cov, level, simultaneous=self.simultaneous)
        limits = self.estimates.columns(z)
        return np.column_stack([limits["conf_low"], limits["conf_high"]])

    def summary_frame(self, alpha: float | None = None) -> pd.DataFrame:
        """`frame` with the columns of statsmodels: coef, std err, z, P>|z| and limits."""
        low, high = self.conf_int(alpha).T
        frame = self.frame.drop(columns="max_bias").assign(conf_low=low, conf_high=high)
        z = "t" if np.isfinite(self.df_denom).any() else "z"
        names = "coef", "std err", z, f"P>|{z}|", "Conf. Int. Low", "Conf. Int. Upp."
        return frame.set_axis([*names, *frame.columns[len(names) :]], axis=1)

    result_frame = property(summary_frame)  # of `t_test_pairwise` in statsmodels

    def tidy(self) -> pd.DataFrame:
        """Broom's columns and the maximum bias, as in `tidy` of a fit."""
        return self.frame.rename_axis("term").reset_index()[list(TIDY)]

    def summary(self) -> Summary:
        grid = tables.effect_grid(self.frame.assign(mark="post"), self.alpha)
        note = FREE + ALL_CONTRASTS * self.simultaneous
        blocks = (tables.Rule("="), grid, tables.Rule("="), tables.Prose((note,)))
        return Summary("Contrasts", blocks, tables.ALERTS[self.kind])

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """The table as LaTeX, as for a fit's summary."""
        return self.summary().as_latex(caption, label)

    def __repr__(self) -> str:
        return f"<Contrasts: {', '.join(map(str, self.frame.index))}>"


Weighed = tuple[Vector, float, float]
"""Weights of terms and groups, the noise sd of released weights, and the tested value."""


def _contrasts(
    result: ReleasedFit,
    rows: Sequence[Weighed],
    names: Sequence[str],
    alpha: float,
    simultaneous: bool,
) -> Contrasts:
    matrix, extra_sd, values = (np.array(part) for part in zip(*rows, strict=True))
    estimates = effects.contrasted(result._averages, matrix, extra_sd)
    distance = estimates.estimate - values
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = distance / estimates.sd
    p = p_value(distance, estimates.bias, estimates.sd, estimates.degrees)
    tests = {"statistic": statistic, "p_value": p}
    index = pd.Index(list(names), name="contrast")
    order = ["estimate", "std_error", "max_bias", *tests, "conf_low", "conf_high"]
    z = frames.critical(estimates.cov, alpha, simultaneous=simultaneous)
    frame = pd.DataFrame(estimates.columns(z) | tests, index=index)[order]
    return Contrasts(frame, alpha, simultaneous, result.guarantee.kind, estimates)


IS_RATIO = "{} is a ratio, but contrasts are linear. Its interval is in conf_int()."


def _row(result: ReleasedFit, averages: AverageEstimate, text: str) -> Weighed:
    for term in result._rows():
        if term.kind in ("ratio", "late") and re.search(rf"\b{re.escape(str(term))}\b", text):
            raise CapabilityError(IS_RATIO.format(term))
    # Unions of levels that the text names, as ``ward[east | west]``: positions of their groups.
    levels: dict[str, dict[str, int]] = {}
    for position, group in enumerate(averages.groups):
        if group.place.level is not None:
            stem = str(replace(group, place=Place(group.place.factor)))
            levels.setdefault(stem, {})[group.place.level] = position
    names, unions = averages.names, dict[str, list[int]]()
    for stem in sorted(levels, key=len, reverse=True):
        for match in re.finditer(rf"(?<!\w){re.escape(stem)}\[([^\[\]]*\|[^\[\]]*)\]", text):
            if match[0] in names:  # a level whose label has a bar
                continue
            labels = [label.strip() for label in match[1].split("|")]
            if not levels[stem].keys() >= set(labels) or len(set(labels)) < len(labels):
                raise CapabilityError(
                    f"{tables.clean(match[0])!r} must name levels of {tables.clean(stem)}, each "
                    f"once. Choices: {', '.join(map(tables.clean, levels[stem]))}."
                )
            unions[match[0]] = [levels[stem][label] for label in labels]
    terms = [*names, *unions]
    _check_rest(result, re.sub(r"`[^`]*`", " ", backticked(text, terms)), names)
    matrix, values = linear(terms, text)
    if len(matrix) != 1:
        raise CapabilityError(f"{tables.clean(text)!r} is more than one contrast. Give a list.")
    weights, union_weights = np.split(matrix[0], [len(names)])
    if not matrix.any():
        raise CapabilityError(f"{tables.clean(text)!r} contains no term of the fit.")
    # The effect in a union is the mean by released shares, whose noise adds to its variance.
    extra_sd = 0.0
    for weight, groups in zip(union_weights, unions.values(), strict=True):
        members = [len(averages.terms) + position for position in groups]
        shares = np.maximum(averages.shares[groups], 0.0)
        weights[members] += weight * shares / shares.sum()
        mean = float(averages.estimate[members] @ shares) / shares.sum()
        deviations = averages.estimate[members] - mean
        noise = deviations * averages.shares_sd[groups] / shares.sum()
        extra_sd += abs(weight) * float(np.linalg.norm(noise))
    return weights, extra_sd, float(values[0])


def _check_rest(result: ReleasedFit, rest: str, names: Sequence[str]) -> None:
    """Refuse names that were not released, and show the call that would release them."""
    request = result.plan.request
    unknown = re.search(r"[^\W\d][\w.]*(?:\[[^\]]*\]?)*(?::[\w.]+(?:\[[^\]]*\])?)?", rest)
    unknown = None if unknown and re.fullmatch(r"[eE]", unknown[0]) else unknown
    if unknown is None:
        return
    name = unknown[0]
    stem, bracket, _ = name.rpartition(":")[2].partition("[")
    call = ""
    if name in (*AVERAGES, *OF_MEANS, *RISKS):
        wanted = [*request.estimands, "means" if name in RISKS else name]
        call = f"estimand={wanted!r}"
    elif stem not in request.groups and (bracket or stem in request.formula.variables):
        call = f"groups={[*request.groups, stem]!r}"
    if not call:
        near = [term for term in names if name in term] or list(names)
        listed = ", ".join(repr(tables.clean(term)) for term in near[:8])
        listed += ", ..." * (len(near) > 8)
        raise CapabilityError(
            f"{tables.clean(name)!r} is not a term of this fit. Choices: {listed}."
        )
    raise CapabilityError(
        f"{tables.clean(name)!r} was not released. It requires another fit, at an additional cost: "
        f"pc.private(..., eps={as_typed(request.budget.epsilon)}, {tables.clean(call)})."
    )


def backticked(text: str, terms: Iterable[str]) -> str:
    """The text with its terms in backticks, which allow any name in an expression.

    Spaces in a term with a call are ignored, as in ``I(x**2)``.
    """
    names = sorted((term.replace("`", "") for term in terms), key=len, reverse=True)
    short = {"".join(name.split()): name for name in names}
    pattern = "|".join(
        r"\s*".join(map(re.escape, "".join(name.split()))) if "(" in name else re.escape(name)
        for name in names
    )

    def quoted(match: re.Match[str]) -> str:
        return f"`{match[0] if match[0] in names else short[''.join(match[0].split())]}`"

    return re.sub(rf"(?<![\w`])({pattern})(?![\w`\[])", quoted, text.replace("`", ""))


def linear(terms: list[str], hypotheses: Any) -> tuple[np.ndarray, np.ndarray]:
    """R, shape (k, m), and q, shape (k,), of hypotheses as for `Tested.wald_test`."""
    from formulaic.utils.constraints import LinearConstraints

    if isinstance(hypotheses, (list, tuple)) and all(isinstance(h, str) for h in hypotheses):
        hypotheses = ", ".join(hypotheses)
    # as in statsmodels, a pair of weights and values
    if isinstance(hypotheses, tuple) and list(map(np.ndim, hypotheses)) in ([2, 1], [1, 0]):
        matrix, values = linear(terms, hypotheses[0])[0], np.ravel(hypotheses[1])
        if len(values) != len(matrix):
            raise CapabilityError(f"A pair of {len(matrix)} hypotheses requires as many values.")
        return matrix, values.astype(float)
    if not isinstance(hypotheses, str):
        hypotheses = np.atleast_2d(np.asarray(hypotheses, dtype=float))
        if hypotheses.ndim != 2 or hypotheses.shape[1] != len(terms):
            raise CapabilityError(
                f"A matrix of hypotheses must have {len(terms)} columns, one per term."
            )
    else:
        hypotheses = backticked(hypotheses, terms)
        if any(part.count("=") > 1 for part in re.sub("`[^`]*`", "", hypotheses).split(",")):
            raise CapabilityError("Write one = in each hypothesis, for example 'x = 0, z = 0'.")
    try:
        names = [term.replace("`", "") for term in terms]
        constraints = LinearConstraints.from_spec(hypotheses, variable_names=names)
    except Exception:
        listed = ", ".join(repr(tables.clean(term)) for term in terms[:10])
        raise CapabilityError(
            "Hypotheses must be linear in the terms, for example 'x = 0, z = 1'. The terms are "
            f"{listed}{', ...' * (len(terms) > 10)}."
        ) from None
    matrix, values = constraints.constraint_matrix, constraints.constraint_values
    return np.asarray(matrix, float), np.asarray(values, float)


class Tested(ReleasedFit):
    """Tests of hypotheses about estimates, from released numbers only, at no privacy cost."""

    def contrast(
        self, asked: str | Sequence[str], alpha: float = 0.05, simultaneous: bool = False
    ) -> Contrasts:
        """Estimate linear contrasts of terms and groups from released numbers, at no privacy cost.

        Parameters
        ----------
        asked : str or sequence of str
            Expressions in the names of `params` and `gate`: ``"ward[east] - ward[west]"``,
            ``"0.5*ATE + 0.5*ATT"``, ``"ATT:ward[east] - ATT"``. ``ward[east | west]`` is the effect
            in both wards together. It is the mean of both effects, weighted by the released shares
            of rows. For ATT and ATO the weights are the released sums of score weights.
        alpha : float
            1 - level.
        simultaneous : bool
            True: limits that cover all contrasts together, from the maximum of |z| under their
            joint covariance, as in `conf_int`.

        Returns
        -------
        Contrasts
            `str()`, `.summary()`, `.frame`, `.as_latex()`: estimate, standard error, maximum bias,
            p value and limits. Covariances of groups are the released ones if the
            groups partition the rows or the fit has several estimands. Otherwise they are taken as
            zero.

        Raises
        ------
        CapabilityError
            A requested term was not released; the message shows the call that would release it. Or
            no average was released, or the expression is not linear.

        Examples
        --------
        >>> fit.contrast("ward[east] - ward[west]").frame.shape
        (1, 7)
        """
        frames.check_alpha(alpha)
        texts = [asked] if isinstance(asked, str) else asked
        plain = isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)
        if not plain or not texts or not all(text.strip() for text in texts):
            raise CapabilityError(
                "A contrast must be text, for example 'ward[east] - ward[west]', or a list of "
                "texts."
            )
        rows = [_row(self, self._averages, text) for text in texts]
        return _contrasts(self, rows, [" ".join(t.split()) for t in texts], alpha, simultaneous)

    @property
    def use_t(self) -> bool:
        """Whether tests use Student's t distribution: only in a fit with clusters.

        The normal distribution is right otherwise: the variance of the noise is known, and the
        number of rows may be private.
        """
        return bool(np.isfinite(self.df_resid))

    @property
    def df_resid(self) -> float:
        """The fewest degrees of freedom of a test of one of `params`; infinity without `use_t`."""
        return float(np.min(self._averages.degrees))

    @property
    def df_model(self) -> float:
        """The number of `params`, without an intercept."""
        return float((self.params.index != "Intercept").sum())

    def _read(self, hypotheses: Any) -> tuple[Matrix, Vector]:
        terms = self._averages.terms
        texts = hypotheses if isinstance(hypotheses, list | tuple) else [hypotheses]
        named = np.full(len(terms), all(isinstance(text, str) for text in texts))
        used = np.flatnonzero(named | self._listed[: len(terms)])  # texts may name slopes
        read, values = linear([str(terms[k]) for k in used], hypotheses)
        matrix = np.zeros((len(read), len(terms)))
        matrix[:, used] = read
        if matrix[:, [term.kind == "late" for term in terms]].any():
            raise CapabilityError(IS_RATIO.format(terms[0]))
        return matrix, values

    def t_test(self, hypotheses: Any, alpha: float = 0.05) -> Contrasts:
        """Test each hypothesis alone, as in statsmodels.

        Hypotheses are as for `wald_test`; texts may also name groups, as for `contrast`.

        Examples
        --------
        >>> fit.t_test("ATE = 0").summary_frame().columns.tolist()
        ['coef', 'std err', 'z', 'P>|z|', 'Conf. Int. Low', 'Conf. Int. Upp.']
        """
        averages = self._averages
        if isinstance(hypotheses, str):
            parts = re.findall("(?:`[^`]*`|[^`,])+", backticked(hypotheses, averages.names))
            hypotheses = [part.replace("`", "").strip() for part in parts] or ""
        texts = hypotheses if isinstance(hypotheses, list | tuple) else [hypotheses]
        if all(isinstance(text, str) for text in texts):
            return self.contrast(hypotheses, alpha)
        matrix, values = self._read(hypotheses)
        matrix = np.pad(matrix, ((0, 0), (0, len(averages.groups))))
        rows = [(row, 0.0, float(value)) for row, value in zip(matrix, values, strict=True)]
        names = [f"c{place}" for place in range(len(rows))]
        return _contrasts(self, rows, names, frames.check_alpha(alpha), simultaneous=False)

    def t_test_pairwise(self, term_name: str, method: str = "hs", alpha: float = 0.05) -> Contrasts:
        """Contrasts of all pairs of levels of a factor, of groups, or of arms.

        Parameters
        ----------
        term_name : str
            A factor of the terms (``"C(ward)"`` or ``"ward"``), of the groups, or the treatment.
        method : str
            Adjustment of p values for the number of pairs, as in statsmodels' ``multipletests``.
            The frame has the adjusted ``pvalue-hs``, and ``reject-hs`` at level `alpha`.

        Examples
        --------
        >>> fit.t_test_pairwise("ward").frame.index.tolist()[:2]
        ['north-east', 'south-east']
        """
        from statsmodels.stats.multitest import multipletests

        averages, request = self._averages, self.plan.request
        # Levels with their terms; the reference of coefficients has an empty text.
        levels = {
            str(term.place.level): str(term)
            for term in averages.groups
            if term.place.level and term_name == str(replace(term, place=Place(term.place.factor)))
        }
        if request.estimand == COHORTS:
            levels.pop("average", None)
        # Groups come before slopes of the projection, which hold other modifiers fixed.
        for stem in () if levels else (term_name, f"C({term_name})", f"C(`{term_name}`)"):
            coded = re.compile(rf"{re.escape(stem)}\[(T\.)?(.*)\]")
            matches = [(m, row) for row in averages.terms if (m := coded.fullmatch(str(row)))]
            if matches:
                domain = self.estimate.schema[matches[0][1].column or request.formula.treatment]
                terms = {m[2]: m[0] for m, _ in matches}
                labels = () if isinstance(domain, Interval) else level_names(domain)
                reference = [level for level in labels if matches[0][0][1] and level not in terms]
                levels = dict.fromkeys(reference[:1], "") | terms
                break
        if not levels:
            factors = sorted({re.sub(r"\[.*", "", name) for name in averages.names if "[" in name})
            listed = ", ".join(map(repr, map(tables.clean, factors))) or "none"
            raise CapabilityError(
                f"{tables.clean(term_name)!r} is not a factor of this fit. Choices: {listed}."
            )
        pairs = [*combinations(levels, 2)]
        texts = [f"{levels[b]} - {levels[a]}" if levels[a] else levels[b] for a, b in pairs]
        contrasts = self.contrast(texts, alpha)
        frame = contrasts.frame.set_axis([f"{b}-{a}" for a, b in pairs])
        try:  # a pair without an estimate is not rejected
            reject, p = multipletests(frame["p_value"].fillna(1.0), alpha, method)[:2]
        except ValueError:
            raise CapabilityError(
                f"method={str(method)[:40]!r} is not available. Choices: those of statsmodels' "
                "multipletests, for example 'hs', 'holm', 'bonferroni' and 'fdr_bh'."
            ) from None
        p = np.where(frame["p_value"].isna(), np.nan, p)
        adjusted = {f"pvalue-{method}": p, f"reject-{method}": reject}
        return replace(contrasts, frame=frame.assign(**adjusted))

    def wald_test(
        self, hypotheses: Any, use_f: bool | None = None, scalar: bool = True
    ) -> ContrastResults:
        """Wald test of a joint linear hypothesis about `params`, as in statsmodels.

        Parameters
        ----------
        hypotheses : str, sequence of str, array of shape (k, m), or pair of arrays
            ``"age = 0, severity = 0"``; ``["C(ward)[T.north] = C(ward)[T.south]"]``; rows of
            weights whose sums of `params` are zero; or such weights and the values of these sums.
        use_f : bool, optional
            Whether the statistic is divided by k, for an F distribution. Default: as `use_t`.
        scalar : bool
            Results are always scalars.

        Returns
        -------
        statsmodels.stats.contrast.ContrastResults
            `statistic`, chi-squared with `df_denom` degrees of freedom, and its `pvalue`. The test
            uses the variance of `cov_params`, and allows for clipping: `pvalue` is a tail of the
            noncentral distribution with the largest noncentrality that the joint bias can cause,
            and `statistic` is the quantile at which the central distribution has this tail. With
            few clusters, the distribution is F (see `df_resid`).

        Raises
        ------
        CapabilityError
            A term is unknown or a ratio, or a hypothesis is not linear or follows from the others.

        Examples
        --------
        >>> round(float(fit.wald_test("ATE = 0").df_denom), 1)
        1.0
        """
        if not scalar:
            raise CapabilityError("Results of wald_test() are scalars. Write scalar=True.")
        return self._wald(*self._read(hypotheses), self.use_t if use_f is None else use_f)

    def _wald(self, matrix: Matrix, values: Vector, use_f: bool) -> ContrastResults:
        from statsmodels.stats.contrast import ContrastResults

        used = np.flatnonzero(matrix.any(axis=0))  # other terms may have no estimate
        averages, matrix = self._averages, matrix[:, used]
        params = self._table()["estimate"].iloc[used]
        rank, distance = len(matrix), matrix @ params.to_numpy() - values
        if not (used.size and np.linalg.matrix_rank(matrix) == rank):
            raise CapabilityError(
                "A hypothesis follows from the others or contains no term. Leave it out."
            )
        sampling, spread = (
            matrix @ v[np.ix_(used, used)] @ matrix.T for v in (averages.sampling, averages.cov)
        )
        degrees = float(np.min(averages.degrees_of(np.diag(sampling), np.sqrt(np.diag(spread)))))
        statistic, p = np.nan, np.nan
        if np.isfinite(spread).all():
            nc = effects.largest_noncentrality(averages, used, matrix, spread)
            wald = float(distance @ np.linalg.solve(spread, distance)) / rank
            law: Any
            biased: Any
            if np.isfinite(degrees):
                law, biased = f(rank, degrees), ncf(rank, degrees, nc)
            else:
                law, biased = chi2(rank, scale=1 / rank), ncx2(rank, nc, scale=1 / rank)
            p = float(biased.sf(wald) if nc > 0 else law.sf(wald)) if nc < np.inf else 1.0
            # tails below the smallest float have no quantile
            statistic = rank * (min(wald, float(law.isf(p))) if nc > 0 else wald)
        if use_f:
            test = ContrastResults(F=statistic / rank, df_num=rank, df_denom=degrees)
        else:
            chi2_law: dict[str, Any] = {"distribution": "chi2", "distargs": (rank,)}
            test = ContrastResults(chi2=statistic, df_denom=rank, statistic=statistic, **chi2_law)
        test.pvalue = np.float64(p)  # a NumPy scalar, as in statsmodels
        return test

    def f_test(self, hypotheses: Any = None) -> ContrastResults:
        """`wald_test` with an F statistic; by default, all slopes and effects but a LATE are 0.

        Examples
        --------
        >>> bool(0 <= fit.f_test().pvalue <= 1)
        True
        """
        if hypotheses is None:
            terms = [*compress(self._averages.terms, self._listed)]
            others = ("late", "mean")  # Effects are differences of the means.
            tested = [term.kind not in others and str(term) != "Intercept" for term in terms]
            hypotheses = np.eye(len(terms))[tested]
        return self.wald_test(hypotheses, use_f=True)

    def wald_test_terms(
        self, skip_single: bool = False, combine_terms: Sequence[str] = ()
    ) -> WaldTestResults:
        """`wald_test` of each term of the formula: all of its coefficients are 0.

        With `skip_single`, terms with one coefficient are left out. Each text in `combine_terms`
        adds a row: a test of all coefficients whose names contain it.

        Examples
        --------
        >>> fit.wald_test_terms().table.index.tolist()
        ['ATE']
        """
        from statsmodels.stats.contrast import WaldTestResults

        terms = {column.name: column.term for column in self.estimate.design.columns}
        names = [str(term) for term in self._averages.terms]
        # the levels of a treatment are one term
        stems = [terms.get(name) or re.sub(r"\[[^\[\]]*\]", "", name) for name in names]
        ratio = self._averages.terms[0].kind == "late"
        rows = {stem: [other == stem for other in stems] for stem in stems[ratio:]}
        rows |= {text: [text in name for name in names] for text in combine_terms}
        rows = {name: used for name, used in rows.items() if not (skip_single and sum(used) == 1)}
        tests = [
            self._wald(np.eye(len(names))[used], np.zeros(sum(used)), use_f=False)
            for used in rows.values()
        ]
        results = [(float(test.statistic), float(test.pvalue), test.df_denom) for test in tests]
        table = pd.DataFrame(results, list(rows), ["statistic", "pvalue", "df_constraint"])
        return WaldTestResults(None, "chi2", None, table=table)
