"""PPO with a critic on colocated worker groups, small enough for two CPU cores."""
