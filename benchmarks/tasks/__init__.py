"""The problems that every contestant is given."""
