"""Topics of a stream of documents: samplers beside variational inference."""
