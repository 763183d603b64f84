"""Wrong versions of the protocol, one at a time, and what sees each of them: `make mutants`."""
