"""How one attempt runs. Knows no database."""
