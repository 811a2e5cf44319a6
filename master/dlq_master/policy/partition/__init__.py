"""The partition stage: which GPUs serve whom this term?"""
