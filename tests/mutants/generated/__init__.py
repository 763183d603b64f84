"""Wrong versions of the stored functions, made by rules, and the tests that see them: `make mutants ARGS="--generated"`."""
