"""Families of pictures beyond shapes and boards: each composes its scenes, paints its parts and asks about them."""
