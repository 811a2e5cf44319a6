"""What commands about single jobs share: output streams, holds, differences, and files named by
users.
"""
