"""One walk over everybody who wants GPUs, in rank order, and the grounds it may be made on."""
