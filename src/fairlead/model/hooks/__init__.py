"""Hooks: addresses at which other systems send webhooks, which become events."""
