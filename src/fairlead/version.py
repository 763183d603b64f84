"""The version of this Fairlead."""

__version__ = "0.1.0"
