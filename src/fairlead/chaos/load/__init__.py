"""The load of a run: clients, job functions, commands, and a tenant that attacks."""
