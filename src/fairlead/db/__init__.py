"""PostgreSQL: the only floor that imports a driver."""
