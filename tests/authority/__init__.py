"""What the operator allows, through the real doors of a real broker with real tool servers behind it."""
