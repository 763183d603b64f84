"""Long-lived loops: worker, heartbeat, finisher, stager, scheduler, dispatcher, watchdog, agent."""
