"""Keys that encrypt secrets at rest: master keys, the data keys that they wrap, and the texts that these seal."""
