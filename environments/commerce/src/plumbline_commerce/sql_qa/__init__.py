"""The SQL job: a question in Portuguese over the shop's database in, one SELECT and a sentence
out."""
