"""Rewards."""

from helpers.ends import clean_end
