"""Tests of what takes long."""
