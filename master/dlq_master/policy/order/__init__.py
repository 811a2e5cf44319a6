"""The order stage: who is next?"""
