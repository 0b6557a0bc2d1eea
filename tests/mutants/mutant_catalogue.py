"""Planted faults: past bugs of DP libraries, and what could go wrong here, each with its killer."""

from __future__ import annotations

import quick_battery as c
from planting import Mutant

SUB, ADD = "substitute", "add_remove"
_EXIT, _ASSIGN = "vault.exit:Exit", "vault.passes:Passes._assign"
_BOX = "vault.queries"

NOISE = (
    Mutant(
        "Gaussian noise of two thirds the size", f"{_EXIT}.noise_query",
        "price * SAFETY", "price * SAFETY / 1.5",
        (c.audit, "trial", SUB),
    ),
    Mutant(
        "the root of two of rho dropped", f"{_EXIT}.noise_query",
        "np.sqrt(2 * stage.rho", "np.sqrt(4 * stage.rho",
        (c.audit, "trial", ADD),
    ),
    Mutant(
        "Laplace noise of half the size", f"{_EXIT}.noise_query",
        "else stage.epsilon", "else 2 * stage.epsilon", (c.audit, "adum, count and sum", SUB),
    ),
    Mutant(
        "rows of a unit counted once", f"{_EXIT}.noise_query",
        "sensitivity * self.plan.request.trust.max_rows", "sensitivity",
        (c.replay, "units", SUB),
    ),
    Mutant(
        "the Gaussian sampler's scale too small", "vault.noise:_gaussian",
        "scale=scale", "scale=scale / 1.5", (c.noise_has_its_scale, "gaussian"),
    ),
    Mutant(
        "the Laplace sampler's scale too small", "vault.noise:_laplace",
        "scale=scale", "scale=scale / 1.5", (c.noise_has_its_scale, "laplace"),
    ),
    Mutant(
        "weights squared in the noise", "vault.noise:_noisy",
        "query.scale / float(weight)", "query.scale / float(weight) ** 2",
        (c.noise_is_scaled_by_weights,),
    ),
    Mutant(
        "noise by NumPy", "vault.noise:_noisy",
        "np.array(sampler(scale * factor)(whole), np.float64) / factor",
        "np.rint(exact[at] + np.random.default_rng().normal(0, query.scale, at.sum()))",
        (c.noise_is_not_numpys,),
    ),
    Mutant(
        "noise from a fixed seed", "vault.noise:_noisy",
        "np.array(sampler(scale * factor)(whole), np.float64) / factor",
        "np.rint(exact[at] + np.random.default_rng(1).normal(0, query.scale, at.sum()))",
        (c.noise_is_fresh,),
    ),
    Mutant(
        "one draw for all coordinates", "vault.noise:_noisy",
        "(whole), np.float64) / factor", "([0])[0] / factor + exact[at])", (c.noise_is_fresh,),
    ),
    Mutant(
        "a noise scale of zero accepted", "vault.noise:_checked",
        "not 0 < loss < float(\"inf\")", "False", (c.noise_of_no_scale_is_refused,),
    ),
)  # fmt: skip

SENSITIVITY = (
    Mutant(
        "Gram without the root of two", f"{_BOX}.moments:Gram.sensitivity",
        "np.sqrt(2.0)", "1.0", (c.audit, "s", SUB),
    ),
    Mutant(
        "less noise off the Gram's diagonal", f"{_BOX}.sums:triangle_weights",
        "np.sqrt(2.0)", "2.0", (c.audit, "private", ADD),
    ),
    Mutant(
        "cross moments as if a row were added", f"{_BOX}.moments:Cross.sensitivity",
        "2.0 if", "1.0 if", (c.replay, "linear", SUB),
    ),
    Mutant(
        "targets of cross moments not cut", f"{_BOX}.moments:Cross.integers",
        "on_grid(self.target(batch), self.cut, TWO_FACTOR)",
        "np.rint(np.nan_to_num(self.target(batch) / self.cut) * PRODUCT_UNIT)",
        (c.audit, "r", ADD),
    ),
    Mutant(
        "what is no number is not zero on the grid, and nothing is cut",
        "vault.exit:on_grid",
        "np.clip(ints, -1.0, 1.0, out=ints)", "ints *= 3.0",
        (c.audit, "s", SUB),
    ),
    Mutant(
        "the norm of a row is not checked", f"{_BOX}.sums:grid_sum",
        "if not fine.all():", "sums *= 2.0\n    if False:", (c.audit, "trial", SUB),
    ),
    Mutant(
        "sums by arm: squares and counts for free", f"{_BOX}.sums:ArmSums.sensitivity",
        "np.sqrt(self._row_norm2)", "1.0", (c.audit, "trial", ADD),
    ),
    Mutant(
        "histogram as if a row were added", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if", "d if", (c.replay, "trial", SUB),
    ),
    Mutant(
        "score sums: a row replaced costs no more", f"{_BOX}.sums:ScoreSums.blocks",
        "4 * norm2", "norm2", (c.audit, "dr", SUB),
    ),
    Mutant(
        "score sums: groups for free", f"{_BOX}.sums:ScoreSums.blocks",
        "r.norm2 + r.group_sets", "r.norm2",
        (c.audit_of_groups, ADD),
    ),
    Mutant(
        "joint scores: a row replaced costs as one added", f"{_BOX}.sums:BlockSums.sensitivity",
        "max(added, squared_change(self.blocks, neighbors))", "added", (c.audit, "together", SUB),
    ),
    Mutant(
        "joint squares: a larger weight for free", f"{_BOX}.sums:ScoreSums.blocks",
        "FREE_SQUARES[kind] if", "6 * FREE_SQUARES[kind] if", (c.audit, "together", SUB),
    ),
    Mutant(
        "slopes: a row replaced costs no more", f"{_BOX}.slopes:SlopeSums.blocks",
        "1.0, 4.0", "1.0, 1.0", (c.audit, "LATE", SUB),
    ),
    Mutant(
        "cells: a row replaced costs no more", f"{_BOX}.cells:CellSums.l1_sensitivity",
        "2.0 if", "1.0 if", (c.audit, "adum, count and sum", SUB),
    ),
    Mutant(
        "cells in l2: squares for free", f"{_BOX}.cells:CellSums.sensitivity",
        "1.0 + beta2 + self._kinds[1] ** 2", "1.0", (c.audit, "adum, gaussian", ADD),
    ),
    Mutant(
        "marginals: one histogram for all", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if neighbors", "1 if neighbors", (c.audit, "private", SUB),
    ),
    Mutant(
        "clusters as if a row were added", f"{_BOX}.cells:ClusterSums.l1_sensitivity",
        "4.0 if", "2.0 if", (c.audit, "adum, kmeans", SUB),
    ),
    Mutant(
        "functional mechanism: products for free",
        f"{_BOX}.moments:PolynomialSums.l1_sensitivity",
        "(a + 0.5 * (a * a + a))", "a", (c.audit, "tm", ADD),
    ),
    Mutant(
        "boosting: axes for free", f"{_BOX}.boosting:Boosting.sensitivity",
        "self.axes * ", "1 * ", (c.replay, "boosting", ADD),
    ),
    Mutant(
        "boosting: one round is charged", f"{_BOX}.boosting:Boosting.sensitivity",
        "self.rounds if whole else 1", "1", (c.audit, "boosting", ADD),
    ),
    Mutant(
        "residuals of boosting not cut", f"{_BOX}.boosting:Boosting.integers",
        "on_grid(residual, self.bound, ONE_FACTOR)",
        "np.rint(2 * residual / self.bound * UNIT)",
        (c.audit, "boosting", SUB),
    ),
    Mutant(
        "kernel: a row replaced costs no more", f"{_BOX}.kernel:KernelRegression._moved",
        "2.0 if", "1.0 if", (c.audit, "kernel", SUB),
    ),
    Mutant(
        "kernel with the density's exponent: features too long", "features.basis:Fourier.at",
        "np.sqrt(self.shares)", "np.sqrt(6 * self.shares)", (c.audit, "kernel", ADD),
    ),
    Mutant(
        "kernel: loss without corners", f"{_BOX}.kernel:KernelProblem.gradient",
        "np.minimum(pull, self.corner, out=pull)", "np.subtract(pull, 3 * t, out=pull)",
        (c.audit, "kernel", ADD),
    ),
    Mutant(
        "bounds bought: one histogram for all columns", f"{_BOX}.sums:HistogramQuery.sensitivity",
        "2 * d if neighbors == \"substitute\" else d", "1", (c.replay, "bought", SUB),
    ),
    Mutant(
        "balance: weighted sums for free", f"{_BOX}.sums:BlockSums.sensitivity",
        "return self.row_norm * UNIT", "return UNIT", (c.replay_of_balance, ADD),
    ),
)  # fmt: skip

ROWS = (
    Mutant(
        "columns of a dict typed by their values", "features.design:_as_table",
        "        elif polars:\n            made[name] = pd.Series(pd.arrays.ArrowExtensionArray(",
        "        elif polars:\n            made[name] = pd.Series((lambda a: column)(",
        (c.missing_cells_change_no_others,),
    ),
    Mutant(
        "a table without columns fails from some number of rows on", "features.basis:by_rows",
        "left[:rows].T.reshape(p, pieces, SMALL_PRODUCT)", "left[:rows].T.reshape(p, -1, "
        "SMALL_PRODUCT)",
        (c.borders_of_blocks_are_none_of_the_answers,),
    ),
    Mutant(
        "objects named by the first equal one", "features.design:_is_plain",
        "and not holds_objects(series)", "", (c.labels_are_of_their_own_cell,),
    ),
    Mutant(
        "objects taken for texts by their first values", "features.design:_is_plain",
        "same and not holds_objects(series)", "same or holds_objects(series)",
        (c.labels_are_of_their_own_cell,),
    ),
    Mutant(
        "any object written as its text", "request.schema:label_key",
        "str(value) if pandas else None", "str(value)",
        (c.texts_of_no_address,),
    ),
    Mutant(
        "the exact number of rows is used under add_remove", "vault.admission:public_size",
        "== \"add_remove\"", "== \"nobody\"", (c.replay, "trial", ADD),
    ),
    Mutant(
        "halves of fixed size under add_remove", "vault.batch:dealt",
        "neighbors == \"add_remove\"", "False", (c.replay, "disjoint", ADD),
    ),
    Mutant(
        "split stratified by treatment", _ASSIGN,
        "\n    return keep, self._dealt(",
        "\n    t = self._rows.column('T', as_labels=False).numbers\n"
        "    return keep, np.argsort(np.argsort(t)) % 2\n    return keep, self._dealt(",
        (c.splits_ignore_values,),
    ),
    Mutant(
        "the split's seed is the data's", "vault.passes:Passes._dealt",
        "entropy=self._entropy",
        "entropy=int(np.nansum(self._rows.column('T', as_labels=False).numbers))",
        (c.splits_ignore_values,),
    ),
    Mutant(
        "folds charged once, and every row in each", "vault.exit:Mechanism.by_part",
        "batch if p is None else batch.only(p)", "batch",
        (c.audit, "r, crossfit", ADD),
    ),
    Mutant(
        "disjoint halves of units charged as parallel", "estimators.budget:make_plan",
        "request.trust.unit is None or request", "True or request",
        (c.plans_cost_what_they_promise,),
    ),
    Mutant(
        "the dearer half is not the one that pays", "estimators.budget:_parallel",
        "if paid[1] > paid[0]:", "if False:", (c.plans_cost_what_they_promise,),
    ),
    Mutant(
        "any number of rows of a unit", "vault.batch:first_rows",
        "rank < max_rows", "rank >= 0", (c.replay, "units", SUB),
    ),
    Mutant(
        "any number of rows of a unit in a file", "vault.sources.stored:Units.marks",
        "rank <= {int(max_rows)}", "rank >= 0", (c.replay_of_units_in_a_file, SUB),
    ),
    Mutant(
        "decimals name units by their floats", "vault.sources.memory:_decimal",
        "\"\".join(map(str, digits))", "str(int(float(value)))",
        (c.units_stay_apart, "decimals"),
    ),
    Mutant(
        "a number and its text are one unit", "vault.sources.memory:unit_key",
        "not mixed or kind == \"text\" or text is None", "True", (c.units_stay_apart, "objects"),
    ),
    Mutant(
        "units of a file go by labels", "vault.sources.stored:Stored._names",
        "\"units\"", "True", (c.units_stay_apart, "Parquet"),
    ),
    Mutant(
        "units of a panel go by labels", "vault.admission:Changes.of",
        "dict.fromkeys(request.keys.values(), \"units\")",
        "dict.fromkeys(request.keys.values(), True)",
        (c.units_stay_apart, "panel"),
    ),
    Mutant(
        "codes with one text are one unit", "vault.sources.files:Labelled.typed",
        "Memory(table, self._of_units)", "Memory(table)", (c.units_stay_apart, "labelled"),
    ),
    Mutant(
        "values outside their bounds stay", "vault.batch:_clean_interval",
        "np.clip(column.numbers, domain.lo, domain.hi)", "column.numbers.copy()",
        (c.values_stay_in_their_domains,),
    ),
    Mutant(
        "missing values count", "vault.batch:_clean_interval",
        "return values, present", "return values, np.ones_like(present)",
        (c.values_stay_in_their_domains,),
    ),
    Mutant(
        "levels from the data", "vault.vault:Vault._selected",
        "passed = noisy >= selection.threshold(query.scale)", "passed = exact > 0",
        (c.levels_of_one_row_stay_unknown,),
    ),
    Mutant(
        "labels pass without a margin for noise", f"{_BOX}.cells:LabelSelection.threshold",
        "math.sqrt(2 * math.log(1 / per_label))", "1.0",
        (c.selection_hides_a_label_of_one_row, SUB),
    ),
    Mutant(
        "outcomes not centred", "vault.transforms:Outcome.__call__",
        " - 0.5 * (self.lo + self.hi)", "", (c.outcomes_are_centred,),
    ),
    Mutant(
        "a stage may be released twice", "vault.vault:Vault._take",
        "self._unspent.pop(key)", "self._unspent[key]", (c.stages_are_spent_once,),
    ),
)  # fmt: skip

CELLS = (
    Mutant(
        "sums of floats taken to be exact", f"{_BOX}.cells:CellSums.l1_sensitivity",
        " + 2.0 * self.rounding", "", (c.rounded_sums_move_no_further_than_stated,),
    ),
    Mutant(
        "the last digit of sums is that of one outcome", "vault.sources.cell_table:_check_digits",
        "math.ulp(MOST_COUNT * max(", "math.ulp(1.0 * max(",
        (c.sums_without_their_digits_are_refused,),
    ),
    Mutant(
        "sums whose last digit is worth a row accepted", "vault.sources.cell_table:_check_digits",
        "if last > MOST_ROUNDING * half:", "if False:",
        (c.sums_without_their_digits_are_refused,),
    ),
    Mutant(
        "steps read as floats", "vault.sources.cell_table:_exact",
        "out[place] = value", "out[place] = int(float(value))", (c.steps_are_read_to_the_unit,),
    ),
)  # fmt: skip

SPARK = (
    Mutant(
        "limits, samples and first values accepted", "vault.sources.spark:_repeats",
        "_BY_LOT.search(text) is None", "True", (c.plans_that_may_differ_each_time_are_known,),
    ),
    Mutant(
        "plans cut short accepted", "vault.sources.spark:_repeats",
        "_CUT_SHORT.search(text) is None", "True",
        (c.plans_that_may_differ_each_time_are_known,),
    ),
    Mutant(
        "names of columns taken for functions", "vault.sources.spark:_repeats",
        "_COLUMNS.sub(\"\", text)", "text", (c.plans_that_may_differ_each_time_are_known,),
    ),
)  # fmt: skip

WORDS = (
    Mutant(
        "a row in the place of names is quoted", "request.formula:_unknown",
        "if not quote:", "if False:", (c.first_lines_are_not_quoted, "yes,no,Alice,HIV+"),
    ),
    Mutant(
        "a row in the place of names is quoted to who names a unit",
        "request.checks:check_columns",
        "if header.untyped:", "if False:", (c.first_lines_are_not_quoted, "Y,T,Alice,HIV+"),
    ),
    Mutant(
        "a CSV file has types", "vault.sources.stored:Stored.__init__",
        "untyped=levels is not None", "untyped=False",
        (c.first_lines_are_not_quoted, "yes,no,Alice,HIV+"),
    ),
    Mutant(
        "values are names", "vault.sources.files:check_header",
        "or any(map(_is_value, names))", "", (c.values_are_no_names,),
    ),
    Mutant(
        "panics go through the guard", "vault.guard:_guard",
        "except BaseException as error:", "except Exception as error:",
        (c.panics_are_told_in_constant_words,),
    ),
    Mutant(
        "an exit carries a value", "vault.guard:_guard",
        "except SystemExit:\n            refused = SystemExit(1)",
        "except SystemExit as stop:\n            refused = stop",
        (c.panics_are_told_in_constant_words,),
    ),
    Mutant(
        "connections left open", "vault.admission:Source.__exit__",
        "self.rows.close()", "pass", (c.connections_are_closed, "parquet"),
    ),
    Mutant(
        "only the last connection is closed", "vault.sources.stored:Connections.close",
        "while self._open:", "if self._open:", (c.connections_are_closed, "csv"),
    ),
)  # fmt: skip

LOADED = (
    Mutant(
        "a published mechanism of a file is told to be proven", "results.stored:_is_call",
        'request.mode == "paper" or isinstance(learner, PRINTED)', 'request.mode == "paper"',
        (c.crafted_files_are_refused, "a published mechanism that is told to be proven"),
    ),
    Mutant(
        "a file states a number of rows that is private", "results.stored:_computed",
        "else size is None", "else True",
        (c.crafted_files_are_refused, "a number of rows, which is private"),
    ),
    Mutant(
        "a file adds releases", "vault.simulation:Replay.check_used",
        "not self._left", "True", (c.crafted_files_are_refused, "a release more"),
    ),
    Mutant(
        "files of any size are read", "results.stored:load_content",
        "> LARGEST", "< 0", (c.large_files_are_refused,),
    ),
    Mutant(
        "designs of any size are made", "features.design:Design._check_size",
        "max(rows) * columns > MOST_ENTRIES", "False", (c.large_designs_are_refused,),
    ),
    Mutant(
        "a row at no known point has the last one's effect", "inference.effects:Answers.__call__",
        "np.append(self.value, np.nan)", "self.value", (c.row_maps_are_total,),
    ),
    Mutant(
        "a code beyond a design's table fails", "features.design:Design.fill",
        ".take(codes, mode=\"wrap\")", "[codes]", (c.row_maps_are_total,),
    ),
    Mutant(
        "a code beyond the labels is a part", "request.partition:LevelAxis.part",
        "np.where(part < self.size, part, -1)", "part", (c.row_maps_are_total,),
    ),
    Mutant(
        "a row without a number counts", f"{_BOX}.sums:ArmHistogram.integers",
        " & ~np.isnan(value)", "", (c.row_maps_are_total,),
    ),
    Mutant(
        "a cell that is not there counts", f"{_BOX}.cells:CellSums.integers",
        " & (cell < self.partition.size)", "", (c.row_maps_are_total,),
    ),
    Mutant(
        "errors of the package's own keep their words", "vault.guard:guarded",
        "(step), Unreadable)", "(step), PrivcausalError)",
        (c.failures_on_rows_are_told_in_one_way,),
    ),
    Mutant(
        "a least number of rows is asked of a private one", "vault.admission:_check_size",
        "if plan.least_rows:", "if rows.size() < plan.least_rows:",
        (c.private_numbers_of_rows_are_not_asked,),
    ),
    Mutant(
        "a table of no rows has no block", "vault.sources.memory:at_least_one",
        "if empty:", "if False:", (c.no_rows_are_rows_too,),
    ),
    Mutant(
        "a classifier of one class, or of no rows", "vault.published:PublishedEBM."
        "_with_public_rows",
        "not (target == value).any()", "False",
        (c.a_published_classifier_has_rows_of_both_classes,),
    ),
)  # fmt: skip

CHANCES = (
    Mutant(
        "the chance that a proof fails is free", "estimators.budget:make_plan",
        "len(undeclared.labels) + failing", "len(undeclared.labels)",
        (c.chances_of_failing_proofs_are_paid_for,),
    ),
    Mutant(
        "the chance that a proof fails is not told", "estimators.budget:planned",
        "use.failing if request.trust.neighbors == \"add_remove\" else 0", "0",
        (c.chances_of_failing_proofs_are_paid_for,),
    ),
    Mutant(
        "halves are taken to be alike", "estimators.dpcate:_most",
        "(2 * OTHER_HALF + 1) * k", "k", (c.chances_of_failing_proofs_are_paid_for,),
    ),
)  # fmt: skip

LEDGER = (
    Mutant(
        "looks at published fits in a proven ledger", "estimators.diagnostics:_look",
        "published = estimate.kind == \"published\"", "published = False",
        (c.looks_are_no_better_than_their_fit,),
    ),
    Mutant(
        "looks at published fits called proven", "estimators.diagnostics:_look",
        "release, estimate.kind if", "release, \"proven\" if",
        (c.looks_are_no_better_than_their_fit,),
    ),
    Mutant(
        "a fit is charged when it is done (refund on error)", "vault.vault:open_vault",
        "        ledger.charge(run, charges, published=paper or published)\n"
        "    if plan",
        "        pass\n    Vault(source, plan, source_of_noise, watch)\n"
        "    if ledger is not None:\n"
        "        ledger.charge(run, charges)\n"
        "    if plan",
        (c.fits_are_charged_before_rows_are_read,),
    ),
    Mutant(
        "test noise is charged", "vault.vault:open_vault",
        "if not source_of_noise.real:", "if False:", (c.fits_are_charged_before_rows_are_read,),
    ),
    Mutant(
        "amounts in floats", "accounting.charge:pico",
        "math.ceil(exact(amount) * PICO)", "int(amount * PICO)", (c.small_amounts_count,),
    ),
    Mutant(
        "caps compared with a tolerance", "accounting.price:within",
        "<= charge.exact(epsilon)", "<= charge.exact(epsilon) + Fraction(1, 10**9)",
        (c.caps_hold_to_the_unit,),
    ),
    Mutant(
        "a pure event counts a quarter of its square", "accounting.price:_shortlist",
        "(2 * charge.PICO)", "(4 * charge.PICO)", (c.known_prices,),
    ),
    Mutant(
        "rho of half the distance", "accounting.price:gaussian_mu",
        "math.sqrt(2 * rho / charge.PICO)\n    while Fraction(mu) ** 2 < Fraction(2 * rho,",
        "math.sqrt(rho / charge.PICO)\n    while Fraction(mu) ** 2 < Fraction(rho,",
        (c.known_prices,),
    ),
    Mutant(
        "spent delta is not taken off", "accounting.price:delta_after",
        "- Fraction(spent, charge.PICO)", "", (c.known_prices,),
    ),
    Mutant(
        "parallel parts promise what the cheapest does", "accounting.tradeoff:TradeOff.minimum",
        "if not functions:", "functions = functions[:1]\n    if not functions:",
        (c.trade_offs_are_of_the_worst,),
    ),
    Mutant(
        "the cap is not asked", "accounting.ledger:Ledger._check_cap",
        "if price.within(price.Events.of([*spent, *new]), self.epsilon, self.delta):", "if True:",
        (c.ledger_keeps_its_cap,),
    ),
    Mutant(
        "the cap is asked for the new charges alone", "accounting.ledger:Ledger._check_cap",
        "price.within(price.Events.of([*spent, *new])", "price.within(price.Events.of(new)",
        (c.ledger_keeps_its_cap,),
    ),
    Mutant(
        "neighbour relations mixed", "accounting.ledger:Ledger._check_run",
        "if len({line[\"neighbors\"] for line in (*book.lines, *lines)}) > 1:", "if False:",
        (c.ledger_mixes_nothing,),
    ),
    Mutant(
        "published claims in a proven ledger", "accounting.ledger:Ledger.charge",
        "if published and not self.allow_published:", "if False:", (c.ledger_mixes_nothing,),
    ),
    Mutant(
        "charges not committed", "accounting.store:Store.append",
        "execute(\"COMMIT\")", "execute(\"ROLLBACK\")",
        (c.charges_are_on_the_disk_when_they_return,),
    ),
    Mutant(
        "a charge undone where its head cannot be written", "accounting.store:Store.append",
        "connection.execute(\"COMMIT\")\n",
        "_write_whole(self.head, self.head.read_text())\n        connection.execute(\"COMMIT\")\n",
        (c.charges_stay_when_the_disk_fails,),
    ),
    Mutant(
        "hashes of lengths and not of lines", "accounting.store:_digest",
        "[previous, *fields]", "[previous, len(list(fields))]", (c.ledger_notices_an_edit,),
    ),
    Mutant(
        "old copies accepted", "accounting.store:Store._checked_book",
        "book.hashes[head[\"lines\"] :][:1] != (head[\"hash\"],)", "False",
        (c.ledger_notices_an_old_copy,),
    ),
    Mutant(
        "a lost head accepted", "accounting.store:Store._checked_book",
        "if head is None and book.lines:", "if False:", (c.ledger_notices_a_lost_head,),
    ),
    Mutant(
        "two names for one ledger", "accounting.store:Store._check_file",
        "status.st_nlink > 1", "False", (c.ledger_refuses_two_names_and_read_only,),
    ),
    Mutant(
        "read-only ledgers answered", "accounting.store:Store._check_file",
        "not status.st_mode & stat.S_IWUSR", "False", (c.ledger_refuses_two_names_and_read_only,),
    ),
    Mutant(
        "ledgers that all may read", "accounting.store:Store.create",
        "_opened(self.path, \"x\")", "_opened(self.path, \"x\", 0o644)",
        (c.ledger_files_are_their_owners,),
    ),
    Mutant(
        "heads that all may read", "accounting.store:Store._advance_head",
        "stat.S_IMODE(self.path.stat().st_mode) & 0o666", "0o666",
        (c.ledger_files_are_their_owners,),
    ),
    Mutant(
        "a draft's link followed", "accounting.store:_write_whole",
        "with _opened(draft, \"x\", access) as file:", "with draft.open(\"w\") as file:",
        (c.ledger_follows_no_link, "study.db.head.0.new"),
    ),
    Mutant(
        "a head's link followed", "accounting.store:Store._checked_book",
        "with _opened(self.head, \"r\") as file:", "with self.head.open() as file:",
        (c.ledger_follows_no_link, "study.db.head"),
    ),
    Mutant(
        "a database's link followed", "accounting.store:Store._check_file",
        "self.path.lstat()", "self.path.stat()", (c.ledger_follows_no_link, "study.db"),
    ),
    Mutant(
        "audits choose their cut where they test it", "auditing.audits:_bound",
        "choosing, choosing_second = first[:half], second[:half_second]\n"
        "        first, second = first[half:], second[half_second:]",
        "choosing, choosing_second = first, second",
        (c.bounds_of_audits_hold,),
    ),
)  # fmt: skip

NETWORKS = (
    Mutant(
        "a row's gradient by a product of whole matrices", "features.functions:before",
        "    return total", "    return w1 @ z.T + b1[:, None]", (c.network_rows_stand_alone,),
    ),
    Mutant(
        "sums of a row in an order that depends on the shape", "features.functions:folded",
        "    while len(parts) > 1:", "    return parts.sum(axis=0)\n    while len(parts) > 1:",
        (c.network_rows_stand_alone,),
    ),
    Mutant(
        "discrete noise for Gaussian noise without a price",
        "accounting.price:multiplier_for_replaced",
        "half = 0.5 * epsilon - h", "half = 0.5 * epsilon", (c.networks_pay_for_discrete_noise,),
    ),
    Mutant(
        "discrete and rounded noise alike but for exp(-2 pi^2 s^2)",
        "accounting.price:rounding_slack",
        "square / (24 * sd**2) + ", "", (c.networks_pay_for_discrete_noise,),
    ),
    Mutant(
        "a coarse grid that is told to be fine", "estimators.dpcate:_weights",
        "vault.PrivateNetwork.grid", "2.0**40", (c.networks_tell_their_grid,),
    ),
    Mutant(
        "a row replaced costs as much as one removed",
        "accounting.price:multiplier_for_replaced",
        "half = 0.5 * epsilon - h", "half = epsilon - h", (c.networks_pay_for_discrete_noise,),
    ),
    Mutant(
        "coins fall too often", "vault.noise:OperatingSystem.coins",
        "heads[tied] = last < rest", "heads[tied] = True", (c.coins_have_their_rate,),
    ),
    Mutant(
        "the same coins for each step", "vault.noise:OperatingSystem.coins",
        "np.frombuffer(os.urandom(size), np.uint8)",
        "np.random.default_rng(1).integers(0, 256, size, np.uint8)", (c.coins_have_their_rate,),
    ),
)  # fmt: skip

PRICES = (
    Mutant(
        "a price is rounded to nearest", "prices:at_most",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'", (c.prices_stay_true, 200),
    ),
    Mutant(
        "what is left is rounded to nearest", "prices:at_least",
        "ROUND_FLOOR", "'ROUND_HALF_EVEN'", (c.prices_stay_true, 200),
    ),
    Mutant(
        "prices of a column are rounded to nearest", "prices:column",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'", (c.prices_stay_true, 200),
    ),
    Mutant(
        "odds are rounded to nearest", "prices:odds",
        "ROUND_CEILING if epsilon > 0 else ROUND_FLOOR", "'ROUND_HALF_EVEN'",
        (c.prices_stay_true, 200),
    ),
    Mutant(
        "how often a guess is right is rounded to nearest", "prices:percent",
        "ROUND_CEILING", "'ROUND_HALF_EVEN'", (c.prices_stay_true, 200),
    ),
    Mutant(
        "a failure chance is rounded to nearest", "prices:chance",
        "whole if 1 / whole >= delta else whole - 1", "whole", (c.prices_stay_true, 200),
    ),
)  # fmt: skip

HEAPS = (
    Mutant(
        "one price that most paid is a scale with a tail", "inference.ranges:read_look",
        "sparse=True", "sparse=False", (c.one_price_is_no_scale,),
    ),
)  # fmt: skip

MUTANTS = (
    *NOISE, *SENSITIVITY, *ROWS, *CELLS, *SPARK, *WORDS, *LOADED, *NETWORKS,
    *CHANCES, *LEDGER, *PRICES, *HEAPS,
)  # fmt: skip
