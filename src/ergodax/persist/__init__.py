"""Runs on disk: draws, checkpoints, and what tells one run from another."""
