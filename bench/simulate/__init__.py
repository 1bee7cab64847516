"""A training step on 2 to 256 nodes, simulated from costs that one machine can measure."""
