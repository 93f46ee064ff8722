"""The extraction job: a review and its order's facts in, a JSON object of ten keys out."""
