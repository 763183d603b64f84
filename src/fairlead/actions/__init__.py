"""What people may do: permission, change, audit and notification in one transaction."""
