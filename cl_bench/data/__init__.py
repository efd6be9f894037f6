"""Images on their way from files to batches: data sets, decoding, caches, class order, the stream, preprocessing and augmentation."""
