"""`infer` on posteriors whose answers are known."""
