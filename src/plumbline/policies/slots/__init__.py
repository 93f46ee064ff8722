"""The slot policy: a causal model that plans which slots to fill, and fills them side by side
(ReFusion)."""
