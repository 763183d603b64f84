"""Rate limits that all server processes share. They are taken before the caller is known."""

from fairlead.store.allowances import RateBudget, seconds_until_unit, take_units

__all__ = ["RateBudget", "seconds_until_unit", "take_units"]
