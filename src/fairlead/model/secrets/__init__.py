"""Secrets: how they are found, masked, generated and kept out of what people read."""
