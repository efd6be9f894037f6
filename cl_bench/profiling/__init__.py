"""What a training step costs beside the bare network, and where its time goes."""
