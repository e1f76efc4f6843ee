"""Does the chain that a kernel makes have the law that theory says? Each check has a fault planted
that it must reject.
"""
