"""What `tq bench` measures, and the tools that `bench/` in the repository measures with.

`timing`, `workload` and `consumer` need only numpy, torch and tensordict: peers are measured with them in environments
in which the native module of this package does not exist.
"""
