"""Planted faults: past bugs of DP libraries, and what could go wrong here, each with its killer."""

from __future__ import annotations

from planting import Mutant

SUB, ADD = "substitute", "add_remove"
_EXIT, _ASSIGN = "vault.exit:Exit", "vault.passes:Passes._assign"
_BOX = "vault.queries"


def audit(case: str, relation: str) -> str:
    test = "auditing/test_audit.py::test_nothing_is_refuted_and_the_tables_are_hard"
    return f"{test}[{case}-{relation}]"


NOISE = (
    Mutant(
        "Gaussian noise of two thirds the size", f"{_EXIT}.noise_query",
        "price * SAFETY", "price * SAFETY / 1.5", audit("trial", SUB),
    ),
    Mutant(
        "the root of two of rho dropped", f"{_EXIT}.noise_query",
        "np.sqrt(2 * stage.rho", "np.sqrt(4 * stage.rho", audit("trial", ADD),
    ),
    Mutant(
        "Laplace noise of half the size", f"{_EXIT}.noise_query",
        "else stage.epsilon", "else 2 * stage.epsilon", audit("adum, count and sum", SUB),
    ),
    Mutant(
        "rows of a unit counted once", f"{_EXIT}.noise_query",
        "sensitivity * self.plan.request.trust.max_rows", "sensitivity",
        "privacy/test_replay.py::test_units[r-full-substitute]",
    ),
    Mutant(
        "the Gaussian sampler's scale too small", "vault.noise:_sampler",
        "l2_distance(T=\"f64\"), scale=scale", "l2_distance(T=\"f64\"), scale=scale / 1.5",
        "vault/test_law.py::test_labels_pass_with_the_stated_noise",
    ),
    Mutant(
        "the Laplace sampler's scale too small", "vault.noise:_sampler",
        "l1_distance(T=\"i64\"), scale=scale", "l1_distance(T=\"i64\"), scale=scale / 1.5",
        "vault/test_cells.py::test_noise_has_the_discrete_laplace_law[0.5]",
    ),
    Mutant(
        "weights squared in the noise", "vault.noise:OperatingSystem.with_noise",
        "query.scale / float(weight)", "query.scale / float(weight) ** 2",
        "vault/test_noise.py::test_weights_scale_each_coordinate",
    ),
    Mutant(
        "noise by NumPy", "vault.noise:OperatingSystem.with_noise",
        "np.array(sampler(whole), np.float64) / factor",
        "np.rint(exact[at] + np.random.default_rng().normal(0, query.scale, at.sum()))",
        "vault/test_noise.py::test_noise_is_on_a_grid_of_two_to_a_power[0.001]",
    ),
    Mutant(
        "noise from a fixed seed", "vault.noise:OperatingSystem.with_noise",
        "np.array(sampler(whole), np.float64) / factor",
        "np.rint(exact[at] + np.random.default_rng(1).normal(0, query.scale, at.sum()))",
        "vault/test_noise.py::test_noise_is_on_a_grid_of_two_to_a_power[0.001]",
    ),
    Mutant(
        "one draw for all coordinates", "vault.noise:OperatingSystem.with_noise",
        "(whole), np.float64) / factor", "([0])[0] / factor + exact[at])",
        "vault/test_noise.py::test_noise_is_normal[0-30.0]",
    ),
    Mutant(
        "a noise scale of zero accepted", "vault.noise:_sampler",
        "not 0 < loss < float(\"inf\")", "False",
        "vault/test_noise.py::test_a_scale_that_is_no_scale_is_refused[0.0]",
    ),
)  # fmt: skip

SENSITIVITY = (
    Mutant(
        "Gram without the root of two", f"{_BOX}.moments:Gram.sensitivity",
        "np.sqrt(2.0)", "1.0", audit("s", SUB),
    ),
    Mutant(
        "less noise off the Gram's diagonal", f"{_BOX}.sums:triangle_weights",
        "np.sqrt(2.0)", "2.0", audit("private", ADD),
    ),
    Mutant(
        "cross moments as if a row were added", f"{_BOX}.moments:Cross.sensitivity",
        "2.0 if", "1.0 if",
        "privacy/test_replay.py::test_declared_bounds[r-linear-full-substitute]",
    ),
    Mutant(
        "targets of cross moments not cut", f"{_BOX}.moments:Cross.integers",
        "on_grid(self.target(batch), self.cut, TWO_FACTOR)",
        "np.rint(np.nan_to_num(self.target(batch) / self.cut) * PRODUCT_UNIT)", audit("r", ADD),
    ),
    Mutant(
        "what is no number is not zero on the grid, and nothing is cut",
        "vault.exit:on_grid",
        "np.clip(ints, -1.0, 1.0, out=ints)", "ints *= 3.0", audit("s", SUB),
    ),
    Mutant(
        "the norm of a row is not checked", f"{_BOX}.sums:grid_sum",
        "if not fine.all():", "sums *= 2.0\n    if False:", audit("trial", SUB),
    ),
    Mutant(
        "sums by arm: squares and counts for free", f"{_BOX}.sums:ArmSums.sensitivity",
        "self.row_norm", "1.0", audit("trial", ADD),
    ),
    Mutant(
        "histogram as if a row were added", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if", "d if", "privacy/test_replay.py::test_difference_in_means[numbers-substitute]",
    ),
    Mutant(
        "score sums: a row replaced costs no more", f"{_BOX}.sums:ScoreSums.blocks",
        "4 * norm2", "norm2", audit("dr", SUB),
    ),
    Mutant(
        "score sums: groups for free", f"{_BOX}.sums:ScoreSums.blocks",
        "r.norm2 + r.group_sets", "r.norm2",
        "mutants/test_killers.py::test_groups_pay_for_their_rows",
    ),
    Mutant(
        "joint scores: a row replaced costs as one added", f"{_BOX}.sums:BlockSums.sensitivity",
        "max(added, squared_change(self.blocks, neighbors))", "added", audit("together", SUB),
    ),
    Mutant(
        "joint squares: a larger weight for free", f"{_BOX}.sums:ScoreSums.blocks",
        "FREE_SQUARES[kind] if", "6 * FREE_SQUARES[kind] if", audit("together", SUB),
    ),
    Mutant(
        "slopes: a row replaced costs no more", f"{_BOX}.slopes:SlopeSums.blocks",
        "1.0, 4.0", "1.0, 1.0", audit("LATE", SUB),
    ),
    Mutant(
        "cells: a row replaced costs no more", f"{_BOX}.cells:CellSums.l1_sensitivity",
        "2.0 if", "1.0 if", audit("adum, count and sum", SUB),
    ),
    Mutant(
        "cells in l2: squares for free", f"{_BOX}.cells:CellSums.sensitivity",
        "1.0 + beta2 + self.square_weight**2", "1.0", audit("adum, gaussian", ADD),
    ),
    Mutant(
        "marginals: one histogram for all", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if neighbors", "1 if neighbors", audit("private", SUB),
    ),
    Mutant(
        "clusters as if a row were added", f"{_BOX}.cells:ClusterSums.l1_sensitivity",
        "4.0 if", "2.0 if", audit("adum, kmeans", SUB),
    ),
    Mutant(
        "functional mechanism: products for free",
        f"{_BOX}.moments:PolynomialSums.l1_sensitivity",
        "(a + 0.5 * (a * a + a))", "a", audit("tm", ADD),
    ),
    Mutant(
        "boosting: axes for free", f"{_BOX}.boosting:Boosting.sensitivity",
        "self.axes * ", "1 * ",
        "privacy/test_replay_boosted.py::test_every_learner_and_split[r-full-substitute]",
    ),
    Mutant(
        "boosting: one round is charged", f"{_BOX}.boosting:Boosting.sensitivity",
        "self.rounds if whole else 1", "1", audit("boosting", ADD),
    ),
    Mutant(
        "residuals of boosting not cut", f"{_BOX}.boosting:Boosting.integers",
        "on_grid(residual, self.bound, ONE_FACTOR)",
        "np.rint(2 * residual / self.bound * UNIT)", audit("boosting", SUB),
    ),
    Mutant(
        "kernel: a row replaced costs no more", f"{_BOX}.kernel:KernelRegression._moved",
        "2.0 if", "1.0 if", audit("kernel", SUB),
    ),
    Mutant(
        "kernel with the density's exponent: features too long", "features.functions:Fourier.at",
        "np.sqrt(self.shares)", "np.sqrt(6 * self.shares)", audit("kernel", ADD),
    ),
    Mutant(
        "kernel: loss without corners", f"{_BOX}.kernel:KernelProblem.gradient",
        "np.minimum(pull, self.corner, out=pull)", "np.subtract(pull, 3 * self.t[at], out=pull)",
        audit("kernel", ADD),
    ),
    Mutant(
        "bounds bought: one histogram for all columns", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if neighbors == \"substitute\" else d", "1",
        "privacy/test_replay.py::test_bought_bounds[r-full-substitute]",
    ),
    Mutant(
        "balance: weighted sums for free", f"{_BOX}.sums:BlockSums.sensitivity",
        "return self.row_norm * UNIT", "return UNIT",
        "privacy/test_replay.py::test_diagnostics[balance-add_remove]",
    ),
)  # fmt: skip

ROWS = (
    Mutant(
        "columns of a dict typed by their values", "features.design:_as_table",
        "        elif polars:\n            made[name] = pd.Series(pd.arrays.ArrowExtensionArray(",
        "        elif polars:\n            made[name] = pd.Series((lambda a: column)(",
        "features/test_columns.py::test_a_missing_cell_changes_no_other[True-polars Int64]",
    ),
    Mutant(
        "a table without columns fails from some number of rows on", "features.functions:by_rows",
        "left[:rows].T.reshape(p, pieces, SMALL_PRODUCT)", "left[:rows].T.reshape(p, -1, "
        "SMALL_PRODUCT)",
        "vault/test_passes.py::test_tables_without_columns_have_products_whatever_their_rows",
    ),
    Mutant(
        "objects named by the first equal one", "features.design:_is_plain",
        "and not holds_objects(series)", "",
        "features/test_columns.py::test_a_label_is_of_its_own_cell[150]",
    ),
    Mutant(
        "objects taken for texts by their first values", "features.design:_is_plain",
        "same and not holds_objects(series)", "same or holds_objects(series)",
        "features/test_columns.py::test_equal_values_of_different_types_keep_their_labels",
    ),
    Mutant(
        "any object written as its text", "request.schema:label_key",
        "str(value) if pandas else None", "str(value)",
        "request/test_schema.py::test_label_key[value10-None]",
    ),
    Mutant(
        "the exact number of rows is used under add_remove", "vault.admission:public_size",
        "== \"add_remove\"", "== \"nobody\"",
        "privacy/test_replay.py::test_difference_in_means[numbers-add_remove]",
    ),
    Mutant(
        "halves of fixed size under add_remove", "vault.batch:dealt",
        "neighbors == \"add_remove\"", "False",
        "privacy/test_replay.py::test_declared_bounds[r-linear-disjoint-add_remove]",
    ),
    Mutant(
        "split stratified by treatment", _ASSIGN,
        "\n    return keep, self._dealt(",
        "\n    t = self._rows.column('T', as_labels=False).numbers\n"
        "    return keep, np.argsort(np.argsort(t)) % 2\n    return keep, self._dealt(",
        "vault/test_split.py::test_parts_do_not_depend_on_values[disjoint-substitute]",
    ),
    Mutant(
        "the split's seed is the data's", "vault.passes:Passes._dealt",
        "entropy=self._entropy",
        "entropy=int(np.nansum(self._rows.column('T', as_labels=False).numbers))",
        "vault/test_split.py::test_parts_do_not_depend_on_values[disjoint-substitute]",
    ),
    Mutant(
        "folds charged once, and every row in each", "vault.passes:Passes._summed",
        "batch if part is None else batch.only(part)", "batch", audit("r, crossfit", ADD),
    ),
    Mutant(
        "disjoint halves of units charged as parallel", "estimators.budget:make_plan",
        "request.trust.unit is None or request", "True or request",
        "mutants/test_killers.py::test_plans_cost_what_they_promise",
    ),
    Mutant(
        "the dearer half is not the one that pays", "estimators.budget:_parallel",
        "if paid[1] > paid[0]:", "if False:",
        "privacy/test_replay.py::test_the_accounting_is_of_the_parts",
    ),
    Mutant(
        "any number of rows of a unit", "vault.batch:first_rows",
        "rank < max_rows", "rank >= 0", "privacy/test_replay.py::test_units[r-full-substitute]",
    ),
    Mutant(
        "any number of rows of a unit in a file", "vault.sources.stored:Stored.marks",
        "rank <= {int(max_rows)}", "rank >= 0",
        "privacy/test_replay_complete.py::test_every_learner_by_units[r-parquet-substitute]",
    ),
    Mutant(
        "decimals name units by their floats", "vault.sources.memory:_decimal",
        "\"\".join(map(str, digits))", "str(int(float(value)))",
        "vault/test_unit_names.py::test_no_two_values_of_objects_share_a_unit[dict-1]",
    ),
    Mutant(
        "a number and its text are one unit", "vault.sources.memory:unit_key",
        "not mixed or kind == \"text\" or text is None", "True",
        "vault/test_unit_names.py::test_no_two_values_of_objects_share_a_unit[dict-1]",
    ),
    Mutant(
        "units of a file go by labels", "vault.sources.stored:Stored._names",
        "\"units\"", "True",
        "mutants/test_killers.py::test_units_of_a_file_stay_apart",
    ),
    Mutant(
        "units of a panel go by labels", "vault.admission:Changes.__init__",
        "dict.fromkeys(request.keys.values(), \"units\")",
        "dict.fromkeys(request.keys.values(), True)",
        "vault/test_unit_names.py::test_a_panel_has_one_row_of_each_unit[decimal-pyarrow]",
    ),
    Mutant(
        "codes with one text are one unit", "vault.sources.files:Labelled.typed",
        "Memory(table, self._of_units)", "Memory(table)",
        "vault/test_unit_names.py::test_two_codes_with_one_text_are_two_units",
    ),
    Mutant(
        "values outside their bounds stay", "vault.batch:cleaned",
        "np.clip(column.numbers, domain.lo, domain.hi)", "column.numbers.copy()",
        "mutants/test_killers.py::test_values_stay_in_their_domains",
    ),
    Mutant(
        "missing values count", "vault.batch:cleaned",
        "return values, present", "return values, np.ones_like(present)",
        "test_bad_input.py::test_without_noise_and_without_a_complete_row[r-substitute]",
    ),
    Mutant(
        "levels from the data", "vault.vault:Vault._selected",
        "passed = noisy >= selection.threshold(query.scale)", "passed = exact > 0",
        "vault/test_law.py::test_a_label_of_one_row_passes_rarely",
    ),
    Mutant(
        "labels pass without a margin for noise", f"{_BOX}.cells:LabelSelection.threshold",
        "math.sqrt(2 * math.log(1 / per_label))", "1.0",
        "vault/test_law.py::test_labels_pass_with_the_stated_noise",
    ),
    Mutant(
        "outcomes not centred", "vault.transforms:Outcome.__call__",
        " - 0.5 * (self.lo + self.hi)", "",
        "mutants/test_killers.py::test_outcomes_are_centred",
    ),
    Mutant(
        "a stage may be released twice", "vault.vault:Vault._take",
        "self._unspent.pop(key)", "self._unspent[key]",
        "vault/test_sums.py::test_what_was_gathered_is_released_for_its_own_query_only",
    ),
)  # fmt: skip

CELLS = (
    Mutant(
        "sums of floats taken to be exact", f"{_BOX}.cells:CellSums.l1_sensitivity",
        " + 2.0 * self.rounding", "",
        "privacy/test_sums_in_cells.py::test_a_rounded_sum_can_move_by_more_than_its_rows[ends]",
    ),
    Mutant(
        "the last digit of sums is that of one outcome", "vault.sources.cell_table:_check_digits",
        "math.ulp(MOST_COUNT * max(", "math.ulp(1.0 * max(",
        "privacy/test_sums_in_cells.py::test_a_rounded_sum_can_move_by_more_than_its_rows[ends]",
    ),
    Mutant(
        "sums whose last digit is worth a row accepted", "vault.sources.cell_table:_check_digits",
        "if last > MOST_ROUNDING * half:", "if False:",
        "privacy/test_sums_in_cells.py::"
        "test_floats_without_the_digits_are_refused_whatever_they_are",
    ),
    Mutant(
        "steps read as floats", "vault.sources.cell_table:_exact",
        "out[place] = value", "out[place] = int(float(value))",
        "privacy/test_sums_in_cells.py::test_a_rounded_sum_can_move_by_more_than_its_rows[ends]",
    ),
)  # fmt: skip

SPARK = (
    Mutant(
        "limits, samples and first values accepted", "vault.sources.spark:_repeats",
        "_BY_LOT.search(text) is None", "True",
        "mutants/test_killers.py::test_plans_of_spark_that_may_differ_each_time_are_known",
    ),
    Mutant(
        "plans cut short accepted", "vault.sources.spark:_repeats",
        "_CUT_SHORT.search(text) is None", "True",
        "mutants/test_killers.py::test_plans_of_spark_that_may_differ_each_time_are_known",
    ),
    Mutant(
        "names of columns taken for functions", "vault.sources.spark:_repeats",
        "_COLUMNS.sub(\"\", text)", "text",
        "mutants/test_killers.py::test_plans_of_spark_that_may_differ_each_time_are_known",
    ),
)  # fmt: skip

WORDS = (
    Mutant(
        "a row in the place of names is quoted", "request.formula:_unknown",
        "if not quote:", "if False:",
        "vault/test_csv_header.py::test_what_stands_in_it_is_never_quoted",
    ),
    Mutant(
        "a row in the place of names is quoted to who names a unit",
        "request.checks:check_table",
        "if header.untyped:", "if False:",
        "vault/test_csv_header.py::test_nor_where_an_option_names_a_column[options0]",
    ),
    Mutant(
        "a CSV file has types", "vault.sources.stored:Stored.__init__",
        "untyped=levels is not None", "untyped=False",
        "vault/test_csv_header.py::test_what_stands_in_it_is_never_quoted",
    ),
    Mutant(
        "values are names", "vault.sources.files:check_header",
        "or any(values)", "",
        "vault/test_csv_header.py::test_a_first_line_that_may_be_a_row_is_refused_in_one_sentence",
    ),
    Mutant(
        "panics go through the guard", "vault.guard:_guard",
        "except BaseException as error:", "except Exception as error:",
        "mutants/test_killers.py::test_panics_are_told_in_constant_words",
    ),
    Mutant(
        "an exit carries a value", "vault.guard:_guard",
        "except SystemExit:\n            refused = SystemExit(1)",
        "except SystemExit as stop:\n            refused = stop",
        "mutants/test_killers.py::test_panics_are_told_in_constant_words",
    ),
    Mutant(
        "connections left open", "vault.admission:Source.__exit__",
        "self.rows.close()", "pass",
        "vault/test_closed.py::test_connections_are_closed[rows-parquet]",
    ),
    Mutant(
        "only the last connection is closed", "vault.sources.stored:database",
        "opened.callback(", "opened.pop_all()\n    opened.callback(",
        "vault/test_closed.py::test_connections_are_closed[units-parquet]",
    ),
)  # fmt: skip

LOADED = (
    Mutant(
        "a published mechanism of a file is told to be proven", "results.stored:_is_call",
        'request.mode == "paper" or isinstance(learner, PRINTED)', 'request.mode == "paper"',
        "privacy/test_loaded.py::test_a_crafted_file_is_refused",
    ),
    Mutant(
        "a file states a number of rows that is private", "results.stored:_computed",
        "else size is None", "else True", "privacy/test_loaded.py::test_a_crafted_file_is_refused",
    ),
    Mutant(
        "a file adds releases", "vault.simulation:Replay.check_used",
        "not self._left", "True",
        "privacy/test_loaded.py::test_a_crafted_file_is_refused[a release more]",
    ),
    Mutant(
        "files of any size are read", "results.stored:load_content",
        "> LARGEST", "< 0", "privacy/test_loaded.py::test_a_file_larger_than_any_fit_is_not_read",
    ),
    Mutant(
        "designs of any size are made", "features.design:Design._check_size",
        "max(rows) * columns > MOST_ENTRIES", "False",
        "mutants/test_killers.py::test_large_designs_are_refused",
    ),
    Mutant(
        "a row at no known point has the last one's effect", "inference.effects:Answers.__call__",
        "np.append(self.value, np.nan)", "self.value",
        "mutants/test_killers.py::test_a_row_beyond_a_table_is_missing",
    ),
    Mutant(
        "a code beyond a design's table fails", "features.design:Design.fill",
        ".take(codes, mode=\"wrap\")", "[codes]",
        "mutants/test_killers.py::test_a_row_beyond_a_table_is_missing",
    ),
    Mutant(
        "a code beyond the labels is a part", "request.partition:Axis.part",
        "np.where(part < self.size, part, -1)", "part",
        "mutants/test_killers.py::test_a_row_beyond_a_table_is_missing",
    ),
    Mutant(
        "a row without a number counts", f"{_BOX}.sums:ArmHistogram.integers",
        " & ~np.isnan(value)", "", "mutants/test_killers.py::test_a_row_beyond_a_table_is_missing",
    ),
    Mutant(
        "a cell that is not there counts", f"{_BOX}.cells:CellSums.integers",
        " & (cell < self.partition.size)", "",
        "mutants/test_killers.py::test_a_row_beyond_a_table_is_missing",
    ),
    Mutant(
        "errors of the package's own keep their words", "vault.guard:guarded",
        "(step), Unreadable)", "(step), PrivcausalError)",
        "mutants/test_killers.py::test_failures_on_rows_are_told_in_one_way",
    ),
    Mutant(
        "a least number of rows is asked of a private one", "vault.admission:_check_size",
        "if plan.least_rows:", "if rows.size() < plan.least_rows:",
        "mutants/test_killers.py::test_private_numbers_of_rows_are_not_asked",
    ),
    Mutant(
        "a table of no rows has no block", "vault.passes:Passes._marked",
        "chain([first], blocks)", "chain([first] if first[0].stop else [], blocks)",
        "mutants/test_killers.py::test_no_rows_are_rows_too",
    ),
    Mutant(
        "a classifier of one class, or of no rows", "vault.published:PublishedEBM."
        "_with_public_rows",
        "not (target == value).any()", "False",
        "mutants/test_killers.py::test_a_published_classifier_has_rows_of_both_classes",
    ),
)  # fmt: skip

CHANCES = (
    Mutant(
        "the chance that a proof fails is free", "estimators.budget:make_plan",
        "len(undeclared.labels) + reserved", "len(undeclared.labels)",
        "estimators/test_dpcate.py::test_that_chance_is_in_delta[1e-05-full]",
    ),
    Mutant(
        "the chance that a proof fails is not told", "estimators.budget:make_plan",
        "dict(failing or {}) if", "{} if",
        "estimators/test_dpcate.py::test_that_chance_is_in_delta[1e-05-full]",
    ),
    Mutant(
        "halves are taken to be alike", "estimators.dpcate:_most",
        "(2 * OTHER_HALF + 1) * k", "k",
        "estimators/test_dpcate.py::"
        "test_more_rows_than_are_taken_to_be_there_are_as_rare_as_is_paid_for",
    ),
)  # fmt: skip

LEDGER = (
    Mutant(
        "looks at published fits in a proven ledger", "estimators.diagnostics:_look",
        "published = estimate.kind == \"published\"", "published = False",
        "results/test_results_diagnostics.py::test_a_look_is_no_better_than_the_fit",
    ),
    Mutant(
        "looks at published fits called proven", "estimators.diagnostics:_look",
        "release, estimate.kind if", "release, \"proven\" if",
        "results/test_results_diagnostics.py::test_a_look_is_no_better_than_the_fit",
    ),
    Mutant(
        "a fit is charged when it is done (refund on error)", "vault.vault:open_vault",
        "        ledger.charge(run_name(question), charges, published=paper or published)\n"
        "    if plan",
        "        pass\n    Vault(source, plan, source_of_noise, watch)\n"
        "    if ledger is not None:\n"
        "        ledger.charge(run_name(question), charges)\n"
        "    if plan", "mutants/test_killers.py::test_fits_are_charged_before_rows_are_read",
    ),
    Mutant(
        "test noise is charged", "vault.vault:open_vault",
        "if not source_of_noise.real:", "if False:",
        "vault/test_noise.py::test_a_ledger_takes_no_test_noise[zero]",
    ),
    Mutant(
        "amounts in floats", "accounting.price:pico",
        "math.ceil(exact(amount) * PICO)", "int(amount * PICO)",
        "accounting/test_charge.py::test_an_amount_that_floats_would_lose_costs_one_unit",
    ),
    Mutant(
        "caps compared with a tolerance", "accounting.price:within",
        "<= exact(epsilon)", "<= exact(epsilon) + Fraction(1, 10**9)",
        "accounting/test_total.py::test_decimal_caps_of_pure_epsilon_are_decimal",
    ),
    Mutant(
        "a pure event counts a quarter of its square", "accounting.price:_shortlist",
        "(2 * PICO)", "(4 * PICO)",
        "accounting/test_total.py::test_many_small_pure_events_are_counted_as_rho_or_better",
    ),
    Mutant(
        "rho of half the distance", "accounting.price:gaussian_mu",
        "math.sqrt(2 * rho / PICO)\n    while Fraction(mu) ** 2 < Fraction(2 * rho,",
        "math.sqrt(rho / PICO)\n    while Fraction(mu) ** 2 < Fraction(rho,",
        "accounting/test_total.py::test_many_small_pure_events_are_counted_as_rho_or_better",
    ),
    Mutant(
        "spent delta is not taken off", "accounting.price:delta_after",
        "- Fraction(spent, PICO)", "",
        "accounting/test_total.py::test_delta_is_taken_off_before_rho_is_converted",
    ),
    Mutant(
        "parallel parts promise what the cheapest does", "accounting.tradeoff:TradeOff.minimum",
        "if not functions:", "functions = functions[:1]\n    if not functions:",
        "accounting/test_tradeoff.py::test_niu_theorem_6_lies_below_every_part",
    ),
    Mutant(
        "the cap is not asked", "accounting.ledger:Ledger._check_cap",
        "if price.within(price.Events.of([*spent, *new]), self.epsilon, self.delta):", "if True:",
        "accounting/test_ledger.py::test_exhausted_says_what_was_asked_and_what_is_left",
    ),
    Mutant(
        "the cap is asked for the new charges alone", "accounting.ledger:Ledger._check_cap",
        "price.within(price.Events.of([*spent, *new])", "price.within(price.Events.of(new)",
        "accounting/test_ledger.py::test_exhausted_says_what_was_asked_and_what_is_left",
    ),
    Mutant(
        "neighbour relations mixed", "accounting.ledger:Ledger.charge",
        "if len({line[\"neighbors\"] for line in (*book.lines, *lines)}) > 1:", "if False:",
        "accounting/test_ledger.py::test_neighbours_are_not_mixed",
    ),
    Mutant(
        "published claims in a proven ledger", "accounting.ledger:Ledger.charge",
        "if published and not self.allow_published:", "if False:",
        "accounting/test_ledger.py::test_published_charges_are_refused_by_default",
    ),
    Mutant(
        "charges not committed", "accounting.store:Store.append",
        "execute(\"COMMIT\")", "execute(\"ROLLBACK\")",
        "mutants/test_killers.py::test_charges_are_on_the_disk_when_they_return",
    ),
    Mutant(
        "a charge undone where its head cannot be written", "accounting.store:Store.append",
        "connection.execute(\"COMMIT\")\n",
        "os.fsync(os.open(self.head, os.O_RDWR))\n        connection.execute(\"COMMIT\")\n",
        "accounting/test_ledger_faults.py::test_a_head_that_cannot_be_written_stops_the_release",
    ),
    Mutant(
        "hashes of lengths and not of lines", "accounting.store:_digest",
        "[previous, *fields]", "[previous, len(list(fields))]",
        "accounting/test_ledger_faults.py::test_an_edit_is_noticed",
    ),
    Mutant(
        "old copies accepted", "accounting.store:Store._checked_book",
        "book.hashes[head[\"lines\"] :][:1] != (head[\"hash\"],)", "False",
        "accounting/test_ledger_faults.py::test_an_old_copy_of_the_database",
    ),
    Mutant(
        "a lost head accepted", "accounting.store:Store._checked_book",
        "if head is None and book.lines:", "if False:",
        "accounting/test_ledger_faults.py::test_a_deleted_head",
    ),
    Mutant(
        "two names for one ledger", "accounting.store:Store._check_file",
        "status.st_nlink > 1", "False",
        "accounting/test_ledger_faults.py::test_a_hard_link_is_refused",
    ),
    Mutant(
        "read-only ledgers answered", "accounting.store:Store._check_file",
        "not status.st_mode & stat.S_IWUSR", "False",
        "accounting/test_ledger_faults.py::test_a_read_only_ledger",
    ),
    Mutant(
        "ledgers that all may read", "accounting.store:Store.create",
        "_opened(self.path, \"x\")", "_opened(self.path, \"x\", 0o644)",
        "accounting/test_ledger_faults.py::test_the_files_are_their_owner_s_alone",
    ),
    Mutant(
        "heads that all may read", "accounting.store:Store._advance_head",
        "stat.S_IMODE(self.path.stat().st_mode) & 0o666", "0o666",
        "accounting/test_ledger_faults.py::test_the_files_are_their_owner_s_alone",
    ),
    Mutant(
        "a draft's link followed", "accounting.store:Store._advance_head",
        "with _opened(draft, \"x\", access) as file:", "with draft.open(\"w\") as file:",
        "accounting/test_ledger_faults.py::test_a_link_in_the_place_of_a_draft_leads_nowhere",
    ),
    Mutant(
        "a head's link followed", "accounting.store:Store._checked_book",
        "with _opened(self.head, \"r\") as file:", "with self.head.open() as file:",
        "accounting/test_ledger_faults.py::test_a_head_that_is_a_link_is_not_followed",
    ),
    Mutant(
        "a database's link followed", "accounting.store:Store._check_file",
        "self.path.lstat()", "self.path.stat()",
        "accounting/test_ledger_faults.py::test_a_link_to_another_ledger_put_in_its_place",
    ),
    Mutant(
        "audits choose their cut where they test it", "auditing:loss_bound",
        "choosing, choosing_second = first[:half], second[:half_second]\n"
        "        first, second = first[half:], second[half_second:]",
        "choosing, choosing_second = first, second",
        "mutants/test_killers.py::test_bounds_of_audits_hold",
    ),
)  # fmt: skip

NETWORKS = (
    Mutant(
        "a row's gradient by a product of whole matrices", "features.functions:before",
        "    return total", "    return w1 @ z.T + b1[:, None]",
        "vault/test_network.py::test_at_kinks_a_row_stands_alone[False-False]",
    ),
    Mutant(
        "sums of a row in an order that depends on the shape", "features.functions:folded",
        "    while len(parts) > 1:", "    return parts.sum(axis=0)\n    while len(parts) > 1:",
        "vault/test_network.py::test_at_kinks_every_sum_stands_alone",
    ),
    Mutant(
        "discrete noise for Gaussian noise without a price",
        "accounting.price:multiplier_for_replaced",
        "half = 0.5 * epsilon - h", "half = 0.5 * epsilon",
        "accounting/test_subsampled.py::"
        "test_the_price_of_a_replaced_row_holds_with_the_slack_inside",
    ),
    Mutant(
        "discrete and rounded noise alike but for exp(-2 pi^2 s^2)",
        "accounting.price:rounding_slack",
        "square / (24 * sd**2) + ", "",
        "accounting/test_subsampled.py::"
        "test_the_price_of_a_replaced_row_holds_with_the_slack_inside",
    ),
    Mutant(
        "a coarse grid that is told to be fine", "estimators.dpcate:_weights",
        "vault.PrivateNetwork.grid", "2.0**40",
        "mutants/test_killers.py::test_networks_tell_their_grid",
    ),
    Mutant(
        "a row replaced costs as much as one removed",
        "accounting.price:multiplier_for_replaced",
        "half = 0.5 * epsilon - h", "half = epsilon - h",
        "accounting/test_subsampled.py::"
        "test_the_price_of_a_replaced_row_holds_with_the_slack_inside",
    ),
    Mutant(
        "coins fall too often", "vault.noise:OperatingSystem.coins",
        "heads[tied] = last < rest", "heads[tied] = True",
        "vault/test_noise.py::test_a_coin_is_64_bits_against_the_rate[0.5]",
    ),
    Mutant(
        "the same coins for each step", "vault.noise:OperatingSystem.coins",
        "np.frombuffer(os.urandom(size), np.uint8)",
        "np.random.default_rng(1).integers(0, 256, size, np.uint8)",
        "vault/test_noise.py::test_coins_have_their_rate_and_are_fresh",
    ),
)  # fmt: skip

PRICES = (
    Mutant(
        "a price is rounded to nearest", "prices:at_most",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
    Mutant(
        "what is left is rounded to nearest", "prices:at_least",
        "ROUND_FLOOR", "'ROUND_HALF_EVEN'",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
    Mutant(
        "prices of a column are rounded to nearest", "prices:column",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
    Mutant(
        "odds are rounded to nearest", "prices:odds",
        "ROUND_CEILING if epsilon > 0 else ROUND_FLOOR", "'ROUND_HALF_EVEN'",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
    Mutant(
        "how often a guess is right is rounded to nearest", "prices:percent",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
    Mutant(
        "a failure chance is rounded to nearest", "prices:chance",
        "whole if 1 / whole >= delta else whole - 1", "whole",
        "results/test_results_prices.py::test_numbers_stay_true",
    ),
)  # fmt: skip

HEAPS = (
    Mutant(
        "one price that most paid is a scale with a tail", "inference.ranges:read_look",
        "sparse=True", "sparse=False",
        "inference/test_score_cut.py::test_one_price_among_zeros_is_no_scale[0.3]",
    ),
)  # fmt: skip

MUTANTS = (
    *NOISE, *SENSITIVITY, *ROWS, *CELLS, *SPARK, *WORDS, *LOADED, *NETWORKS,
    *CHANCES, *LEDGER, *PRICES, *HEAPS,
)  # fmt: skip
