"""Public maps of one row: from cleaned covariates to bounded features. No state comes from rows."""
