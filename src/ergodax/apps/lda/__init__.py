"""Latent Dirichlet allocation of a stream of documents."""
