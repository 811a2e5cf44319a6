"""The size stage: how many GPUs does a job get?"""
