"""Tests of the parts, one module at a time."""
