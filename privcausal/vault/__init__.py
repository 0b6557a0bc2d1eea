"""The vault is the only code that reads rows.

Other subpackages may import only the names listed in this file. A `Vault` is an opaque handle on
the rows. Mechanisms and transforms describe the queries that it answers.
"""

# ruff: noqa: I001 - the imports are set like `__all__`
from privcausal.vault.admission import (
    Source, check_row_order, from_table, open_source, public_size, typed,
)  # fmt: skip
from privcausal.vault.check_data import Findings, inspect
from privcausal.vault.estimators import DeclaredFit, Estimators, FittedEstimators, RowMap
from privcausal.vault.exit import Mechanism
from privcausal.vault.guard import opening, paid
from privcausal.vault.passes import single_blas_thread
from privcausal.vault.published import (
    Affine, ExactRidge, PrintedCells, Process, PublishedAnswers, PublishedAte,
    PublishedEBM, PublishedLogits, PublishedProcess, Ridge, SecondStage, TanhNetwork, Weight,
    Weighting, ridge_price,
)  # fmt: skip
from privcausal.vault.queries.boosting import BoostedRegression, Boosting, PrivateNetwork, Shapes
from privcausal.vault.queries.cells import (
    CellSums, ClusterSums, ColumnHistograms, LabelSelection, public_centres,
)  # fmt: skip
from privcausal.vault.queries.slopes import CohortSums, PathSize
from privcausal.vault.queries.kernel import KernelRegression, proven_lipschitz
from privcausal.vault.queries.moments import (
    BINS, Cross, Gram, Marginals, PolynomialSums, SizeHistogram,
)  # fmt: skip
from privcausal.vault.queries.moments import OutlierSums, RegressionMoments, ResidualMoments
from privcausal.vault.queries.slopes import ArmMeans, InstrumentScores, SlopeScores, SlopeSums
from privcausal.vault.queries.sums import (
    ArmHistogram, ArmHistograms, ArmSums, ClusterSquares, CutScore, Regressors, ScoreSquares,
    ScoreSums,
)  # fmt: skip
from privcausal.vault.queries.cells import FollowUp, SurvivalCounts, SurvivalScore
from privcausal.vault.simulation import Replay
from privcausal.vault.simulation import simulate
from privcausal.vault.sources.cell_table import MOST_COUNT, CellTable, read_cells
from privcausal.vault.sources.files import file_labels, read_file
from privcausal.vault.transforms import (
    Aipw, ArmScore, ArmSize, Assigned, ByFold, ImputedEffect, Influence, LinkWeight, OfArm,
    OfCovariates, OfTreatment, Outcome, OutcomeResidual, RegressionInfluence,
    RegressionRow, ResidualProduct, ScoreVector, SurveyWeight, Transform, TransformProduct,
    TreatedScore, WeightedScore, WorkingResidual,
)  # fmt: skip
from privcausal.vault.vault import Vault, open_vault

__all__ = [
    "BINS", "MOST_COUNT", "Affine", "Aipw", "ArmHistogram", "ArmHistograms", "ArmMeans",
    "ArmScore", "ArmSize", "ArmSums", "Assigned", "BoostedRegression", "Boosting", "ByFold",
    "CellSums", "CellTable", "ClusterSquares", "ClusterSums", "CohortSums", "ColumnHistograms",
    "Cross", "CutScore", "DeclaredFit", "Estimators", "ExactRidge", "Findings",
    "FittedEstimators", "FollowUp", "Gram", "ImputedEffect", "Influence", "InstrumentScores",
    "KernelRegression", "LabelSelection", "LinkWeight", "Marginals", "Mechanism", "OfArm",
    "OfCovariates", "OfTreatment", "Outcome", "OutcomeResidual", "OutlierSums", "PathSize",
    "PolynomialSums", "PrintedCells", "PrivateNetwork", "Process", "PublishedAnswers",
    "PublishedAte", "PublishedEBM", "PublishedLogits", "PublishedProcess",
    "RegressionInfluence", "RegressionMoments", "RegressionRow", "Regressors", "Replay",
    "ResidualMoments", "ResidualProduct", "Ridge", "RowMap", "ScoreSquares", "ScoreSums",
    "ScoreVector", "SecondStage", "Shapes", "SizeHistogram", "SlopeScores", "SlopeSums",
    "Source", "SurveyWeight", "SurvivalCounts", "SurvivalScore", "TanhNetwork", "Transform",
    "TransformProduct", "TreatedScore", "Vault", "Weight", "WeightedScore", "Weighting",
    "WorkingResidual", "check_row_order", "file_labels", "from_table", "inspect", "open_source",
    "open_vault", "opening", "paid", "proven_lipschitz", "public_centres", "public_size",
    "read_cells", "read_file", "ridge_price", "simulate", "single_blas_thread", "typed",
]  # fmt: skip
