"""Room for ranks: how many on which nodes, and its reservation in a Ray cluster."""
