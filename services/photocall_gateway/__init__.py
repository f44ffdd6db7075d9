"""The HTTP gateway. Never imports torch or pillow."""
