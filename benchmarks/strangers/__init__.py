"""Posteriors of strangers: is `ex.infer` right on models that nobody of the project wrote it for?"""
