"""Long-lived loops: workers, the stager, the watchdog."""
