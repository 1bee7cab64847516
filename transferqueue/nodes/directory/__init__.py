"""Which nodes there are, and which of them is home of which partition."""
