"""Commands: the allowlist of programs that workers may run, and the arguments that a payload fills."""
