"""The transit stage: is the change worth its price, and may it be made now?"""
