"""Templates and filters: JSON with placeholders, and conditions on events."""
