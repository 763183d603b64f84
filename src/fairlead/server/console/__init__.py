"""The web console, over the same actions as the API."""
