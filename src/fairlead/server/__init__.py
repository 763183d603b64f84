"""The HTTP face: the only floor that imports the web framework."""
