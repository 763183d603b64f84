"""`fairlead chaos`: real processes under faults, and a check of what became of every job."""
