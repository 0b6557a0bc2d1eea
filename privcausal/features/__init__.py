"""Public maps of one row from cleaned covariates to bounded features, without state from rows."""
