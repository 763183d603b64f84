"""The library: Fairlead, what its methods return, and leases for loops of your own."""
