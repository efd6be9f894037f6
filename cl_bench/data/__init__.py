"""Images on their way from files to batches: decoding, caches, class order, the stream, augmentation."""
