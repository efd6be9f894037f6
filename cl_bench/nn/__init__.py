"""Building blocks shared by methods; they know torch and timm, nothing of streams, records or plugins."""
