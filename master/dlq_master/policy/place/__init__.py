"""The place stage: which GPUs?"""
