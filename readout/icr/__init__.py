"""In-context routing: few-shot directions, a bias on attention logits, a trained router, and its controls."""
