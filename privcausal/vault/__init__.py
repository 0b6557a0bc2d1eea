"""The rows. Outside this room nothing but what is named here may be imported from it.

A `Vault` is an opaque handle; mechanisms and transforms are orders to it.
"""

from privcausal.vault.curator import Findings, inspect
from privcausal.vault.declared import Declared, DeclaredFit, RowMap
from privcausal.vault.door import (
    Source,
    Vault,
    check_columns,
    check_types,
    hold,
    open_vault,
    opening,
    public_size,
    read,
    typed,
)
from privcausal.vault.estimators import Estimators
from privcausal.vault.mechanisms.arms import ArmHistogram, ArmSums
from privcausal.vault.mechanisms.boosting import Boosting, Regression, Shapes
from privcausal.vault.mechanisms.cells import CellSums
from privcausal.vault.mechanisms.clusters import ClusterSums, public_centres
from privcausal.vault.mechanisms.counts import BINS, Marginals, SizeHistogram
from privcausal.vault.mechanisms.diagnostics import ArmMeans
from privcausal.vault.mechanisms.kernel import KernelAnswers, KernelRegression, proven_lipschitz
from privcausal.vault.mechanisms.labels import LabelSelection
from privcausal.vault.mechanisms.moments import Cross, Gram
from privcausal.vault.mechanisms.network import PrivateNetwork
from privcausal.vault.mechanisms.objective import PublishedLogits
from privcausal.vault.mechanisms.polynomials import PolynomialSums
from privcausal.vault.mechanisms.published import PublishedAte
from privcausal.vault.mechanisms.published_cate import (
    Process,
    PublishedAnswers,
    PublishedProcess,
)
from privcausal.vault.mechanisms.quantiles import Grid, Magnitudes
from privcausal.vault.mechanisms.scores import Regressors, ScoreSquares, ScoreSums
from privcausal.vault.mechanisms.second_stage import Affine, Ridge, SecondStage
from privcausal.vault.mechanisms.tanh_network import TanhNetwork
from privcausal.vault.rehearsal import rehearse
from privcausal.vault.sources.files import read_file
from privcausal.vault.transforms.scores import (
    Aipw,
    ArmSize,
    Balance,
    ByFold,
    CentredProduct,
    ImputedEffect,
    OfCovariates,
    Outcome,
    OutcomeResidual,
    OverlapRoot,
    Product,
    ResidualProduct,
    SquaredTreatmentResidual,
    Transform,
    Treatment,
    TreatmentResidual,
)
from privcausal.vault.transforms.weighted import (
    OverlapMass,
    OverlapScore,
    TreatedMass,
    TreatedScore,
)

__all__ = [
    "BINS",
    "Affine",
    "Aipw",
    "ArmHistogram",
    "ArmMeans",
    "ArmSize",
    "ArmSums",
    "Balance",
    "Boosting",
    "ByFold",
    "CellSums",
    "CentredProduct",
    "ClusterSums",
    "Cross",
    "Declared",
    "DeclaredFit",
    "Estimators",
    "Findings",
    "Gram",
    "Grid",
    "ImputedEffect",
    "KernelAnswers",
    "KernelRegression",
    "LabelSelection",
    "Magnitudes",
    "Marginals",
    "OfCovariates",
    "Outcome",
    "OutcomeResidual",
    "OverlapMass",
    "OverlapRoot",
    "OverlapScore",
    "PolynomialSums",
    "PrivateNetwork",
    "Process",
    "Product",
    "PublishedAnswers",
    "PublishedAte",
    "PublishedLogits",
    "PublishedProcess",
    "Regression",
    "Regressors",
    "ResidualProduct",
    "Ridge",
    "RowMap",
    "ScoreSquares",
    "ScoreSums",
    "SecondStage",
    "Shapes",
    "SizeHistogram",
    "Source",
    "SquaredTreatmentResidual",
    "TanhNetwork",
    "Transform",
    "TreatedMass",
    "TreatedScore",
    "Treatment",
    "TreatmentResidual",
    "Vault",
    "check_columns",
    "check_types",
    "hold",
    "inspect",
    "open_vault",
    "opening",
    "proven_lipschitz",
    "public_centres",
    "public_size",
    "read",
    "read_file",
    "rehearse",
    "typed",
]
