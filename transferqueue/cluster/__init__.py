"""Sessions of a Ray cluster: found, and where they span nodes started and ended. Ray is imported where it is in use.

Ray starts and places; what nodes say to each other goes another way (`transferqueue.nodes`).
"""

from transferqueue.cluster.ray_registry import (
    find_session as find_session,
)
from transferqueue.cluster.ray_registry import (
    forget_session as forget_session,
)
from transferqueue.cluster.ray_registry import (
    is_ray_worker as is_ray_worker,
)
from transferqueue.cluster.ray_registry import (
    ray_is_running as ray_is_running,
)
from transferqueue.cluster.ray_registry import (
    register_cluster_session as register_cluster_session,
)
from transferqueue.cluster.ray_registry import (
    register_session as register_session,
)
from transferqueue.cluster.session_here import (
    session_here as session_here,
)
from transferqueue.cluster.starting import (
    is_running as is_running,
)
from transferqueue.cluster.starting import (
    open_cluster as open_cluster,
)
from transferqueue.cluster.starting import (
    spans_nodes as spans_nodes,
)
