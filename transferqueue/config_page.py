"""The page ``docs/configuration.md``, made from the keys; a test compares the two.

``python -m transferqueue.config_page >docs/configuration.md`` writes it anew.
"""

from __future__ import annotations

from transferqueue.config import environment_variable, key_table

_ABOUT = """# Configuration

`init` takes a mapping (nested or with dotted keys), a `Config`, and dotted keys as overrides:

```python
import transferqueue as tq

tq.init({"storage": {"size": "4GiB"}}, **{"read.mode": "shared"})
```

The environment sets what neither names: the variable of a key is its name in capitals after `TRANSFERQUEUE_`, with `__`
for the dot, as in `{variable}=4GiB`. `TRANSFERQUEUE_SESSION` is no key: it names the session to join. Sizes
are bytes or text (`512MiB`, `4GiB`, `4GB`). An unknown key is refused by name.

Keys of the *session* are chosen by the process that creates it; a process that joins later and asks for something else
is warned and gets the session's. Keys of the *process* are each process's own choice.

| key | default | of the | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page as text."""
    rows = [f"| `{key}` | {default} | {owner} | {meaning} |" for key, default, owner, meaning in key_table()]
    about = _ABOUT.replace("{variable}", environment_variable("storage.size"))
    return about + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
