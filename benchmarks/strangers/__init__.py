"""Posteriors of strangers: is `ex.infer` right on models that it was not written for?"""
