"""Stages of automatic inference, each usable alone: mode finding, whitening."""
