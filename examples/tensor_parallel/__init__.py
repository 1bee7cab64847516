"""Two replicas of a model, each split over two ranks: which rank gets which rows, and which writes back."""
