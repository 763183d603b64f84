"""Rates of definitions, of tenants and of keys.

The start of an attempt is the moment for which its claim has counted the tokens, so the bound is exact.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "No rate is ever exceeded (I15)")
