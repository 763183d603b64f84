"""Workflows: their specification, graph, runs and steps."""
