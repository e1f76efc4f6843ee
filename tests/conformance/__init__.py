"""Tests that every kernel of the library keeps the contract."""
