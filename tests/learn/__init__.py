"""Tests of models on tables."""
