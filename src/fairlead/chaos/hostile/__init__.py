"""A hostile tenant beside measured ones: `python -m fairlead.chaos.hostile --seed 7 --minutes 4`.

Attackers send requests that are made of the OpenAPI document, and attacks that an earlier version could not bear, as every
role of one tenant. Victims of other tenants work meanwhile, and are measured before, during and after.
"""
