"""The papers' experiments, in small."""
