"""Jobs: fit, extend, refit, invert, study, plan, export of models."""
