"""Connections to other systems: engines that deliver jobs, and sources of events."""
