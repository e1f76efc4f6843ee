"""Mutants of the package, kept as data, and the tests that have to notice them.

They lie with the benchmarks, not with the tests: running them takes an hour, and what comes out is
a score. `mutants.jsonl` has one mutant a line: a file, one of its lines, and what stands there
instead.
"""
