"""The console: pages for people, over the same actions as the API."""
