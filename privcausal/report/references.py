"""A paragraph on methods and privacy for a paper, with what it cites."""

from __future__ import annotations

from privcausal.report.view import FitView

WORKS = {
    "AIPW": "Robins, J. M., Rotnitzky, A. and Zhao, L. P. (1994). Estimation of regression "
    "coefficients when some regressors are not always observed. JASA 89, 846-866.",
    "Cattaneo": "Cattaneo, M. D. (2010). Efficient semiparametric estimation of multi-valued "
    "treatment effects under ignorability. Journal of Econometrics 155, 138-154.",
    "Difference in means": "Neyman, J. (1923, 1990). On the application of probability theory to "
    "agricultural experiments. Statistical Science 5, 465-472.",
    "Differences in differences": "Sant'Anna, P. H. C. and Zhao, J. (2020). Doubly robust "
    "difference-in-differences estimators. Journal of Econometrics 219, 101-122.",
    "Anderson and Rubin": "Anderson, T. W. and Rubin, H. (1949). Estimation of the parameters of a "
    "single equation in a complete system of stochastic equations. Annals of Mathematical "
    "Statistics 20, 46-63.",
    "Kolesár": "Armstrong, T. B. and Kolesár, M. (2018). Optimal inference in a class of "
    "regression models. Econometrica 86, 655-683.",
    "R-learner": "Nie, X. and Wager, S. (2021). Quasi-oracle estimation of heterogeneous treatment "
    "effects. Biometrika 108, 299-319.",
    "DR-learner": "Kennedy, E. H. (2023). Towards optimal doubly robust estimation of "
    "heterogeneous causal effects. Electronic Journal of Statistics 17, 3008-3049.",
    "X-learner": "Kuenzel, S. R., Sekhon, J. S., Bickel, P. J. and Yu, B. (2019). Metalearners for "
    "estimating heterogeneous treatment effects using machine learning. PNAS 116, 4156-4165.",
    "boost": "Nori, H., Caruana, R., Bu, Z., Shen, J. H. and Kulkarni, J. (2021). Accuracy, "
    "interpretability, and differential privacy via explainable boosting. ICML.",
    "Betlei": "Betlei, A., Gregoir, T., Rahier, T., Bissuel, A., Diemert, E. and Amini, M.-R. "
    "(2021). Differentially private individual treatment effect estimation from aggregated data.",
    "discrete Gaussian": "Canonne, C., Kamath, G. and Steinke, T. (2020). The discrete Gaussian "
    "for differential privacy. NeurIPS 33.",
    "guesses right": "Dong, J., Roth, A. and Su, W. J. (2022). Gaussian differential privacy. "
    "JRSS-B 84, 3-37.",
}
"""By the words that call for them."""

ALWAYS = (
    "Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity in "
    "private data analysis. TCC."
)


def methods_text(view: FitView) -> str:
    """Methods, privacy, software and references, a paragraph each."""
    software = ", ".join(f"{name} {version}" for name, version in view.versions)
    privacy = " ".join((view.headline[-1], *view.guarantee))
    said = " ".join(view.methods)
    cited = [work for words, work in WORKS.items() if words in f"{said} {privacy}"]
    references = "\n".join(f"- {work}" for work in sorted([*cited, ALWAYS]))
    return f"{said}\n\n{privacy}\n\nSoftware: {software}.\n\nReferences\n{references}\n"
