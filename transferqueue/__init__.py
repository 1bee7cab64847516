"""TransferQueue over shared memory."""
