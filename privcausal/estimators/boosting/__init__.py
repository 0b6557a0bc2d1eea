"""Base "dpebm" (private explainable boosting): training, and its learners."""
