"""The storage service: what a session needs done by somebody, and by nobody in particular."""

from transferqueue.service.service import StorageService

__all__ = ["StorageService"]
