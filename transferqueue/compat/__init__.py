"""The compatible face: programs written for the package TransferQueue 0.1.11 run on this data plane unchanged.

``transferqueue.compat.transfer_queue`` has the modules and names of that package. It holds no logic of its own: each
call is the native one with other options.
"""
