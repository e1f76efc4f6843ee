"""Reports: one HTML template, its pictures, and what `infer` and `verify` tell."""
