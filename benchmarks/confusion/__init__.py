"""Right and subtly wrong equations and recipes: which does `verify` accept?"""
