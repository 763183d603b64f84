"""The console's pages, one module for each."""
