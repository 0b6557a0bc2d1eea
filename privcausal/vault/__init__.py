"""The rows. Outside this room nothing but what is named here may be imported from it.

A `Vault` is an opaque handle; mechanisms and transforms are orders to it.
"""

from privcausal.vault.admission import (
    Source,
    check_columns,
    check_types,
    from_table,
    open_source,
    public_size,
    typed,
)
from privcausal.vault.check_data import Findings, inspect
from privcausal.vault.estimators import Declared, DeclaredFit, Estimators, GivenFunction, RowMap
from privcausal.vault.exit import Mechanism
from privcausal.vault.guard import opening, paid
from privcausal.vault.mechanisms.boosting import BoostedRegression, Boosting, Shapes
from privcausal.vault.mechanisms.cells import CellSums, ClusterSums, public_centres
from privcausal.vault.mechanisms.diagnostics import ArmMeans
from privcausal.vault.mechanisms.domains import Grid, LabelSelection, Magnitudes
from privcausal.vault.mechanisms.kernel import KernelAnswers, KernelRegression, proven_lipschitz
from privcausal.vault.mechanisms.moments import (
    BINS,
    Cross,
    Gram,
    Marginals,
    PolynomialSums,
    SizeHistogram,
)
from privcausal.vault.mechanisms.network import PrivateNetwork
from privcausal.vault.mechanisms.scores import (
    ArmHistogram,
    ArmHistograms,
    ArmSums,
    CutScore,
    Regressors,
    ScoreSquares,
    ScoreSums,
    VectorScores,
)
from privcausal.vault.mechanisms.slopes import InstrumentScores, SlopeScores, SlopeSums
from privcausal.vault.paper.betlei import PrintedCells, PublishedLogits, ridge_price
from privcausal.vault.paper.dpcate import (
    Affine,
    ExactRidge,
    Process,
    PublishedAnswers,
    PublishedProcess,
    Ridge,
    SecondStage,
    TanhNetwork,
    Weight,
)
from privcausal.vault.paper.niu import PublishedEBM, Weighting
from privcausal.vault.paper.private import PublishedAte
from privcausal.vault.simulation import simulate
from privcausal.vault.sources.cell_table import CellTable, read_cells
from privcausal.vault.sources.files import read_file
from privcausal.vault.sources.labelled import file_labels
from privcausal.vault.transforms import (
    Aipw,
    ArmScore,
    ArmSize,
    ByFold,
    FeatureNorm,
    ImputedEffect,
    MassBalance,
    OfArm,
    OfCovariates,
    Outcome,
    OutcomeResidual,
    OverlapMass,
    OverlapRoot,
    OverlapScore,
    ResidualProduct,
    ScoreVector,
    SurveyWeight,
    Taken,
    Transform,
    TransformProduct,
    TreatedMass,
    TreatedScore,
    Treatment,
    TreatmentResidual,
)
from privcausal.vault.vault import Vault, open_vault

__all__ = [
    "BINS", "Affine", "Aipw", "ArmHistogram", "ArmHistograms", "ArmMeans", "ArmScore",
    "ArmSize", "ArmSums", "BoostedRegression", "Boosting", "ByFold", "CellSums", "CellTable",
    "ClusterSums", "Cross", "CutScore", "Declared", "DeclaredFit", "Estimators", "ExactRidge",
    "FeatureNorm", "Findings", "GivenFunction", "Gram", "Grid", "ImputedEffect",
    "InstrumentScores", "KernelAnswers", "KernelRegression", "LabelSelection", "Magnitudes",
    "Marginals", "MassBalance", "Mechanism", "OfArm", "OfCovariates", "Outcome",
    "OutcomeResidual", "OverlapMass", "OverlapRoot", "OverlapScore", "PolynomialSums",
    "PrintedCells", "PrivateNetwork", "Process", "PublishedAnswers", "PublishedAte",
    "PublishedEBM", "PublishedLogits", "PublishedProcess", "Regressors", "ResidualProduct",
    "Ridge", "RowMap", "ScoreSquares", "ScoreSums", "ScoreVector", "SecondStage", "Shapes",
    "SizeHistogram", "SlopeScores", "SlopeSums", "Source", "SurveyWeight", "Taken",
    "TanhNetwork", "Transform", "TransformProduct", "TreatedMass", "TreatedScore", "Treatment",
    "TreatmentResidual", "Vault", "VectorScores", "Weight", "Weighting", "check_columns",
    "check_types", "file_labels", "from_table", "inspect", "open_source", "open_vault",
    "opening", "paid", "proven_lipschitz", "public_centres", "public_size", "read_cells",
    "read_file", "ridge_price", "simulate", "typed",
]  # fmt: skip
