"""Simulation-based calibration of `infer`, and of the errors that it reports."""
