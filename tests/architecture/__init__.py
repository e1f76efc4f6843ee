"""Tests of how the code is laid out and documented."""
