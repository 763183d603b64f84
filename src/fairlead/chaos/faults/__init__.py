"""The faults of a run: what they are, when they happen, and the proxies and fail points that they use."""
