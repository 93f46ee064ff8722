"""What a run would do, need and cost, and what is wrong with it: said without building or training
anything."""
