"""Found where `transferqueue.dropin` put the folder above on the path: the names of ``transferqueue.compat``.

After this file has run, ``transfer_queue`` and its submodules *are* the modules of that package.
"""

try:
    from transferqueue.dropin import alias_modules
except ImportError as error:
    import sys

    raise ImportError(
        f"`tq dropin` put transfer_queue on the path of {sys.executable}, which has no transferqueue-shm installed: "
        "install it there, or run the command without `tq dropin`"
    ) from error

alias_modules()
