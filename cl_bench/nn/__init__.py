"""Building blocks shared by methods; they know torch and timm's modules, nothing of streams, records or plugins."""
