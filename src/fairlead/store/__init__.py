"""Reading and writing rows: x.py beside x.sql. Takes a Tx, never opens one."""
