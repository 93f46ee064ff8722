"""The same database from the public Olist data set: nine CSV files that a user has downloaded."""
