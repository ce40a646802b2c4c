"""What the operator sets: settings from flags, variables and files, and the disabled file."""
