"""What every family built on a pretrained causal model shares: loading, chat, head, a tiny
stand-in."""
