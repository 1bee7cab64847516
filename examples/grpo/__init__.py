"""GRPO on Ray worker groups, small enough for two CPU cores: the main job of transferqueue-shm."""
