"""What the examples share: the task, its data, the model and what a policy's ranks do."""
