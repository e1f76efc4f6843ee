"""Models on tables: reading and preparing a table, its regressions, how well they predict."""
