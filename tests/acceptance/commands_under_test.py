"""A worker of commands: those of the file that FAIRLEAD_CONFIG names."""

from fairlead import Fairlead

fl = Fairlead()
fl.allow_commands()
